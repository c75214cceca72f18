// `npm test`, the first ring of the tests: set-up for this machine's best instruction-set level, types, lint, unused code,
// generated files, all unit tests, every suite at that level, and each kernel once wherever else this machine can run it
// (kernel_cases.test.ts). `npm run test:all` runs the second ring.
//   npm test [-- PATTERN… [OPTIONS]]   PATTERN: only files whose path has it
//     --package NAME   only this package's tests (a folder of packages/ or apps/); may be repeated
//     --bail           ends with the first test that fails
//     --report         prints a table of the parts with their times
import { parseArgs } from "node:util";
import { hasClang, metalSimulator, nativeFor, node, Parts, pathsOf, script, sourceChecks, usage } from "./parts.mjs";

const { values, positionals } = usage(() =>
  parseArgs({
    allowPositionals: true,
    options: {
      package: { type: "string", multiple: true, default: [] },
      bail: { type: "boolean", default: false },
      report: { type: "boolean", default: false },
    },
  }),
);
const some = values.package.length > 0 || positionals.length > 0;
const parts = new Parts();

process.env.MLXTS_RING = "1";
// Other levels run a few small cases: it takes less time to compile them without optimization.
process.env.MLXTS_UNOPTIMIZED = "others";

await parts.need("set-up", node, [
  script("setup/setup.mjs"),
  "--levels",
  "best",
  "--tests",
  ...nativeFor(values.package),
]);
if (!some || values.package.length > 0)
  await parts.checks([
    ...(some ? [] : sourceChecks),
    {
      name: "other levels of this processor",
      args: [script("setup/setup.mjs"), "--levels", "runnable", "--tests", ...nativeFor(values.package)],
    },
    ...(hasClang ? [metalSimulator] : []),
  ]);
await parts.vitest(
  "tests",
  [...(values.bail ? ["--bail=1"] : []), ...positionals, ...pathsOf(values.package, "scripts/check/kernel_cases")],
  { env: { MLXTS_TEST_PACKAGES: values.package.join() } },
);

if (values.report) parts.report();
if (!hasClang)
  console.log("no clang 19 here: nothing ran on the Metal simulator (apt-get install clang-19 libobjc-12-dev, …)");
if (!some)
  console.log(
    "left out: all cases on other levels, simulated Metal and CUDA, cross builds, other versions of Node.js, wrong implementations: npm run test:all",
  );
parts.end();
