// `npm test`, the first ring of the tests: set-up for this machine's best instruction-set level, types, lint, unused code,
// generated files, all unit tests, every suite at that level, and each kernel once wherever else this machine can run it
// (kernel_cases.test.ts). `npm run test:all` runs the second ring.
//   npm test [-- PATTERN… [OPTIONS]]   PATTERN: only files whose path has it
//     --package NAME   only this package's tests (a folder of packages/ or apps/); may be repeated
//     --bail           ends with the first test that fails
//     --report         prints a table of the parts with their times
import {
  bailOf,
  hasClang,
  KERNEL_CASES,
  metalSimulator,
  NO_CLANG,
  nativeFor,
  node,
  Parts,
  pathsOf,
  readArguments,
  script,
  sourceChecks,
} from "./parts.mjs";

const { values, positionals } = readArguments({}, { allowPositionals: true });
const packages = values.package;
const some = packages.length > 0 || positionals.length > 0;
const parts = new Parts();

process.env.MLXTS_RING = "1";
// Other levels run a few small cases: it takes less time to compile them without optimization.
process.env.MLXTS_UNOPTIMIZED = "others";

const setUp = (levels) => [script("setup/setup.mjs"), "--levels", levels, "--tests", ...nativeFor(packages)];
await parts.need("set-up", node, setUp("best"));
await parts.checks([
  ...(some ? [] : sourceChecks),
  { name: "other levels of this processor", args: setUp("runnable") },
  ...(hasClang ? [metalSimulator] : []),
]);
const files = [...positionals, ...pathsOf(packages), ...(packages.length > 0 ? [KERNEL_CASES] : [])];
await parts.vitest("tests", [...bailOf(values), ...files], { env: { MLXTS_TEST_PACKAGES: packages.join() } });

if (values.report) parts.report();
if (!hasClang) console.log(NO_CLANG);
if (!some)
  console.log(
    "left out: all cases on other levels, simulated Metal and CUDA, cross builds, other versions of Node.js, wrong implementations: npm run test:all",
  );
parts.end();
