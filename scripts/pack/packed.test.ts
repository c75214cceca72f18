import { spawnSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { clangMissing } from "@mlxts/test-kit/clang";
import { firstRing } from "@mlxts/test-kit/rings";
import { buildSync } from "esbuild";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { opPackages, publishedPackages, root } from "../check/packages.ts";
import { installed as nvrtcInstalled } from "../native/nvrtc.mjs";
import { consumerTypeTests } from "./consumer_types.ts";
import { readmeTests } from "./readmes.ts";

// What a user installs: the packed tarballs, in an empty project, without a network.

const USE = `
const device = Device.open("cpu");
const x = device.tensor("f32", [2, 4], [1, 2, 3, 4, 5, 6, 7, 8]);
const weight = device.tensor("f32", [4], [1, 1, 1, 1]);
const encoder = device.encoder();
const out = rmsNorm(encoder, { x, weight });
encoder.commit().then(() => out.readNumbers()).then((numbers) => {
  console.log(JSON.stringify([...numbers].map((n) => Number(n.toFixed(4)))));
  device.dispose();
});
`;
const PLATFORM = `${process.platform}-${process.arch}`;
const VERSION = expect.stringMatching(/^\d+\.\d+\.\d+/);
const EXPECTED = "[0.3651,0.7303,1.0954,1.4606,0.7581,0.9097,1.0613,1.213]";

const folder = mkdtempSync(join(tmpdir(), "mlxts-packed-"));
const tarballs = join(folder, "tarballs");
const project = join(folder, "project");

function run(command: string, args: string[], cwd: string) {
  const result = spawnSync(command, args, { cwd, encoding: "utf8", env: { ...process.env, NODE_OPTIONS: "" } });
  return { status: result.status, text: `${result.stdout}${result.stderr}`, stdout: result.stdout };
}

const tarball = (name: string) => join(tarballs, readdirSync(tarballs).find((file) => file.startsWith(name)) as string);

/** An empty project, and packages installed into it. */
function install(into: string, packages: readonly string[]): void {
  expect(run("mkdir", [into], folder).status).toBe(0);
  writeFileSync(join(into, "package.json"), JSON.stringify({ name: "user", private: true }));
  const installed = run("npm", ["install", "--offline", "--no-audit", "--no-fund", ...packages], into);
  expect(installed.status, installed.text).toBe(0);
}

/** Where the packages of others lie that the package in a folder needs, directly or not. */
function othersOf(at: string, found = new Set<string>()): Set<string> {
  const { dependencies = {} } = JSON.parse(readFileSync(join(at, "package.json"), "utf8"));
  for (const name of Object.keys(dependencies)) {
    const places = createRequire(join(at, "package.json")).resolve.paths(name) ?? [];
    const path = realpathSync(places.map((place) => join(place, name)).find((place) => existsSync(place)) as string);
    if (!name.startsWith("@mlxts/")) found.add(path);
    othersOf(path, found);
  }
  return found;
}

const everythingFolder = join(folder, "cli");

/** A project with all packages and the command line. */
function everything(): string {
  if (existsSync(everythingFolder)) return everythingFolder;
  const own = readdirSync(tarballs).filter((file) => !file.startsWith("mlxts-metal-sim-"));
  const others = othersOf(join(root, "apps", "cli"));
  install(everythingFolder, [
    "--install-links",
    "--ignore-scripts",
    ...own.map((file) => join(tarballs, file)),
    ...others,
  ]);
  return everythingFolder;
}

beforeAll(() => {
  // The first ring packs for programs on this machine.
  const scope = ["--this-machine", ...(firstRing ? ["--quick"] : [])];
  const packed = run(process.execPath, [join(root, "scripts", "pack", "pack.mjs"), tarballs, ...scope], root);
  expect(packed.status, packed.text).toBe(0);
  install(project, [tarball("mlxts-core-"), tarball("mlxts-norms-")]);
}, 600_000);

afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("packed tarballs in an empty project", () => {
  it("work from ESM", () => {
    writeFileSync(
      join(project, "use.mjs"),
      `import { Device } from "@mlxts/core";\nimport { rmsNorm } from "@mlxts/norms";\n${USE}`,
    );
    expect(run(process.execPath, ["use.mjs"], project)).toMatchObject({ status: 0, stdout: `${EXPECTED}\n` });
  });

  it("work from CommonJS", () => {
    writeFileSync(
      join(project, "use.cjs"),
      `const { Device } = require("@mlxts/core");\nconst { rmsNorm } = require("@mlxts/norms");\n${USE}`,
    );
    expect(run(process.execPath, ["use.cjs"], project)).toMatchObject({ status: 0, stdout: `${EXPECTED}\n` });
  });

  // A program may hold core twice: as ESM beside CommonJS, or in two folders. What one makes, ops of the other take.
  const MIXED = `
const device = core.Device.open("cpu");
const x = device.tensor("f32", [2, 4], [1, 2, 3, 4, 5, 6, 7, 8]);
const weight = device.tensor("f32", [4], [1, 1, 1, 1]);
const view = new other.Tensor(x.buffer, "f32", [2, 4]);
const arena = device.arena(4096);
const encoder = device.encoder({ arena });
const first = rmsNorm(encoder, { x, weight });
const out = rmsNorm(encoder, { x: view, weight, out: device.tensor("f32", [2, 4]) });
const kinds = [x, view, x.buffer, device, arena, encoder].map((object) => [core, other].map(({ Tensor, Device }) =>
  [Tensor, Device, view.buffer.constructor, arena.constructor, encoder.constructor].some((type) => object instanceof type)));
let error;
try { rmsNorm(encoder, { x: 1, weight }); } catch (caught) { error = caught; }
const recording = encoder.finish();
Promise.resolve(recording.replay()).then(() => out.readNumbers()).then(async (numbers) => {
  const same = [...(await first.readNumbers())].every((n, i) => n === numbers[i]);
  const known = [core, other].every(({ ArgumentTypeError }) => error instanceof ArgumentTypeError);
  console.log(core.Device === other.Device, same, known, kinds.flat().every(Boolean));
  console.log(JSON.stringify([...numbers].map((n) => Number(n.toFixed(4)))));
  device.dispose();
});
`;
  const IMPORTS = 'import { createRequire } from "node:module";\nconst require = createRequire(import.meta.url);\n';
  it.each<[string, string]>([
    [
      "CommonJS take what ESM makes",
      'import * as core from "@mlxts/core";\nconst other = require("@mlxts/core");\nconst { rmsNorm } = require("@mlxts/norms");',
    ],
    [
      "ESM take what CommonJS makes",
      'import * as other from "@mlxts/core";\nconst core = require("@mlxts/core");\nimport { rmsNorm } from "@mlxts/norms";',
    ],
  ])("ops in %s", (_, head) => {
    writeFileSync(join(project, "mixed.mjs"), IMPORTS + head + MIXED);
    const { status, text } = run(process.execPath, ["mixed.mjs"], project);
    expect(text).toBe(`false true true true\n${EXPECTED}\n`);
    expect(status).toBe(0);
  });

  describe("beside another core in a folder of its own", () => {
    /** norms with a core of its own, of that version, beside the project's. */
    function nested(name: string, version: string): { at: string; outer: string; inner: string } {
      const at = join(folder, name);
      cpSync(project, at, { recursive: true });
      const outer = join(at, "node_modules", "@mlxts", "core");
      const inner = join(at, "node_modules", "@mlxts", "norms", "node_modules", "@mlxts", "core");
      cpSync(outer, inner, { recursive: true });
      const own = JSON.parse(readFileSync(join(inner, "package.json"), "utf8"));
      for (const file of ["package.json", ...readdirSync(join(inner, "dist")).map((file) => join("dist", file))]) {
        const path = join(inner, file);
        if (/\.(json|c?js)$/.test(file))
          writeFileSync(path, readFileSync(path, "utf8").replaceAll(`"${own.version}"`, `"${version}"`));
      }
      return { at, outer: realpathSync(outer), inner: realpathSync(inner) };
    }
    const { version } = JSON.parse(readFileSync(join(root, "packages", "core", "package.json"), "utf8"));
    const head =
      'import * as core from "@mlxts/core";\nimport { rmsNorm } from "@mlxts/norms";\n' +
      'const other = createRequire(require.resolve("@mlxts/norms"))("@mlxts/core");';

    it.each([version, version.replace(/\d+$/, "99")])("works where that is of version %s", (inner) => {
      const { at } = nested(`nested-${inner}`, inner);
      writeFileSync(join(at, "mixed.mjs"), IMPORTS + head + MIXED);
      expect(run(process.execPath, ["mixed.mjs"], at).text).toBe(`false true true true\n${EXPECTED}\n`);
    });

    it("names both where their versions do not work together", () => {
      const { at, outer, inner } = nested("conflict", "0.99.0");
      const call =
        '\nconst device = core.Device.open("cpu");\ntry { rmsNorm(device.encoder(), {}); } catch (error) { console.log(error.message); }';
      writeFileSync(join(at, "conflict.mjs"), IMPORTS + head + call);
      expect(run(process.execPath, ["conflict.mjs"], at).text).toBe(
        `rmsNorm: \`encoder\` must be a CommandEncoder, got a CommandEncoder of @mlxts/core ${version} in ${outer} — ` +
          `@mlxts/core 0.99.0 in ${inner} checks this call: let both use one version (\`npm ls @mlxts/core\` shows who brings which)\n`,
      );
    });
  });

  it("bring the suites of their ops, on the same ops", () => {
    const same = "console.log(suites.length, suites.some(({ op }) => op === rmsNorm))";
    const imports = 'import { rmsNorm } from "@mlxts/norms";\nimport { suites } from "@mlxts/norms/testing";';
    const requires =
      'const { rmsNorm } = require("@mlxts/norms");\nconst { suites } = require("@mlxts/norms/testing");';
    for (const [file, head] of [
      ["suites.mjs", imports],
      ["suites.cjs", requires],
    ] as const) {
      writeFileSync(join(project, file), `${head}\n${same};\n`);
      expect(run(process.execPath, [file], project)).toMatchObject({ status: 0, stdout: "15 true\n" });
    }
  });

  it.each(opPackages)("bring the Metal kernels of %s with every header they include", (name) => {
    const native = (of: string) => {
      const into = join(folder, "unpacked", of);
      mkdirSync(into, { recursive: true });
      expect(run("tar", ["-xzf", tarball(`mlxts-${of}-`), "-C", into], project).status).toBe(0);
      return join(into, "package", "native");
    };
    const folders = [native(name), native("core")];
    const textsIn = (path: string) => readdirSync(path).filter((file) => /\.(metal|h)$/.test(file));
    const texts = textsIn(folders[0] as string);
    expect(texts).toEqual(textsIn(join(root, "packages", name, "native")));
    expect(texts.some((file) => file.endsWith(".metal"))).toBe(true);
    for (const file of texts)
      for (const [, header] of readFileSync(join(folders[0] as string, file), "utf8").matchAll(
        /#\s*include\s*"([^"]+)"/g,
      ))
        expect(
          folders.some((native) => existsSync(join(native, header as string))),
          `${file}: ${header}`,
        ).toBe(true);
  });

  describe.skipIf(firstRing || process.platform !== "linux")("carry binaries for Linux", () => {
    const read = (...args: string[]) => {
      const { status, stdout } = spawnSync("readelf", args, { encoding: "utf8", maxBuffer: 1 << 26 });
      expect(status, args.join(" ")).toBe(0);
      return stdout;
    };
    const LIBRARIES = ["libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0"];
    const MACHINES = { "linux-x64": "X86-64", "linux-arm64": "AArch64" };

    it.each(["core", ...opPackages])("%s needs nothing but glibc 2.28", (name) => {
      const into = join(folder, "binaries", name);
      mkdirSync(into, { recursive: true });
      expect(run("tar", ["-xzf", tarball(`mlxts-${name}-`), "-C", into], project).status).toBe(0);
      for (const [platform, machine] of Object.entries(MACHINES)) {
        const binaries = join(into, "package", "prebuilds", platform);
        // The kernels for another processor are built on x64.
        if (process.arch !== "x64" && platform !== PLATFORM && name !== "core") continue;
        expect(readdirSync(binaries).length).toBeGreaterThan(0);
        for (const file of readdirSync(binaries)) {
          const path = join(binaries, file);
          expect(read("-h", path), path).toContain(machine);
          const needed = [...read("-d", path).matchAll(/\(NEEDED\)[^[]*\[(.+)\]/g)].map(([, library]) => library);
          expect(LIBRARIES, path).toEqual(expect.arrayContaining(needed));
          // The addon at least needs some: what readelf says is read as it is meant.
          if (name === "core") expect(needed, path).toContain("libc.so.6");
          const versions = [...read("-V", path).matchAll(/Name: ([A-Z]+)_(\d+)\.(\d+)/g)];
          for (const [text, library, major, minor] of versions)
            expect([library, Number(major), Number(minor) <= 28], `${path}: ${text}`).toEqual(["GLIBC", 2, true]);
        }
      }
    });
  });

  it.skipIf(firstRing || !nvrtcInstalled()).each(opPackages)("%s carries its kernels for CUDA", (name) => {
    const listed = run("tar", ["-tzf", tarball(`mlxts-${name}-`)], project).stdout.split("\n");
    const stems = (pattern: RegExp) => listed.flatMap((path) => pattern.exec(path)?.[1] ?? []).sort();
    const texts = stems(/^package\/native\/(\w+)\.metal$/);
    expect(stems(/^package\/prebuilds\/cuda\/(\w+)\.ptx\.br$/)).toEqual(texts);
    expect(texts.length).toBeGreaterThan(0);
  });

  it("say what to mark as external when they are bundled, and work when it is", () => {
    writeFileSync(
      join(project, "entry.mjs"),
      `import { Device } from "@mlxts/core";\nimport { rmsNorm } from "@mlxts/norms";\n${USE}`,
    );
    const bundle = (outfile: string, external: string[]) =>
      buildSync({
        absWorkingDir: project,
        entryPoints: ["entry.mjs"],
        bundle: true,
        platform: "node",
        format: "esm",
        outfile: `bundles/dist/${outfile}`,
        external,
      });
    bundle("whole.mjs", []);
    const whole = run(process.execPath, ["bundles/dist/whole.mjs"], project);
    expect(whole.status).toBe(1);
    expect(whole.text).toContain(
      "if your code is bundled, mark the package as external (esbuild: --external:@mlxts/*)",
    );
    bundle("marked.mjs", ["@mlxts/*"]);
    expect(run(process.execPath, ["bundles/dist/marked.mjs"], project)).toMatchObject({
      status: 0,
      stdout: `${EXPECTED}\n`,
    });
  });

  it("carry the addon for Apple silicon where it has been built", ({ skip }) => {
    const file = join("prebuilds", "darwin-arm64", "core.node");
    if (!existsSync(join(root, "packages", "core", file))) skip("run `npm run darwin`");
    const packed = readFileSync(join(project, "node_modules", "@mlxts", "core", file));
    // Mach-O, 64 bits, for arm64.
    expect([packed.readUInt32LE(0), packed.readUInt32LE(4)]).toEqual([0xfeedfacf, 0x0100000c]);
  });

  it("expect a core of their own series of versions", () => {
    const manifest = (name: string) =>
      JSON.parse(readFileSync(join(project, "node_modules", "@mlxts", name, "package.json"), "utf8"));
    expect(manifest("norms").peerDependencies).toEqual({ "@mlxts/core": `^${manifest("core").version}` });
  });

  it("install nothing but themselves, and run no scripts", () => {
    const tree = run("npm", ["ls", "--all", "--parseable", "--offline"], project).stdout.trim().split("\n").slice(1);
    expect(tree.map((line) => line.slice(line.indexOf("@mlxts"))).sort()).toEqual(["@mlxts/core", "@mlxts/norms"]);
  });

  it("are enough for the command line to verify an op", () => {
    const cli = everything();
    const command = [join(cli, "node_modules", "mlxts", "bin", "mlxts.mjs"), "verify", "--device", "cpu"];
    const { status, text } = run(process.execPath, [...command, "--op", "l2Norm", "--json", "report.json"], cli);
    expect(status, text).toBe(0);
    expect(text).toMatch(/\nPASS: all 228 cases passed on /);
    expect(JSON.parse(readFileSync(join(cli, "report.json"), "utf8"))).toMatchObject({
      versions: { mlxts: VERSION, "@mlxts/core": VERSION, "@mlxts/nn": VERSION },
      pass: true,
      summary: { cases: 228, failed: 0 },
    });
  });

  it.skipIf(clangMissing() !== undefined)("have a simulator that checks kernels (skipped without clang)", () => {
    const commander = realpathSync(join(root, "packages", "metal-sim", "node_modules", "commander"));
    const simulator = join(folder, "simulator");
    install(simulator, ["--install-links", "--ignore-scripts", tarball("mlxts-metal-sim-"), commander]);
    const installed = join(simulator, "node_modules", "@mlxts", "metal-sim");
    expect(existsSync(join(installed, "native", "framework"))).toBe(false);
    const command = [join(simulator, "node_modules", ".bin", "metal-sim"), "check"];
    const planted = join(installed, "examples", "planted.metal");
    const flags = ["--kernel", "wrong_flags", "--fill", "out=nan:64", "--group", "64", "--threadgroup", "tile=256"];
    const { status, text } = run(process.execPath, [...command, planted, ...flags], simulator);
    expect(text).toContain("wrong_flags: race: 4-byte read of `tile` at byte 252 at ");
    expect(status).toBe(1);
  });

  const withTypes = firstRing ? [] : publishedPackages;
  it.each(withTypes.map((name) => `mlxts-${name}-`))("%s passes publint --strict and attw", (name) => {
    const publint = run(join(root, "node_modules", ".bin", "publint"), ["run", "--strict", tarball(name)], root);
    expect(publint.status, publint.text).toBe(0);
    const attw = run(
      join(root, "node_modules", ".bin", "attw"),
      ["--profile", "strict", "--no-definitely-typed", tarball(name)],
      root,
    );
    expect(attw.status, attw.text).toBe(0);
  });
});

if (!firstRing) consumerTypeTests({ root, project: everything, run });
readmeTests({ root, project: everything, run });
