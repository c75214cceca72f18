import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { clangMissing } from "@mlxts/test-kit/clang";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
const copy = join(root, "build", "new-op");
const bin = (name: string) => join("node_modules", ".bin", name);
const source = (script: string, ...args: string[]) => ["scripts/run-source.mjs", script, ...args];

/** A command's whole output, and whether it ended well. */
function runWith(env: Record<string, string>, command: string, ...args: string[]) {
  const { status, stdout, stderr } = spawnSync(command, args, {
    cwd: copy,
    encoding: "utf8",
    maxBuffer: 1 << 28,
    env: { ...process.env, NO_COLOR: "1", ...env },
  });
  return { ok: status === 0, said: `${stdout}${stderr}` };
}
const run = (command: string, ...args: string[]) => runWith({}, command, ...args);
const succeeds = (command: string, ...args: string[]) =>
  expect(run(command, ...args)).toEqual({ ok: true, said: expect.any(String) });

const folderLinks = (folder: string) => {
  // What is installed is shared; links to this repository's packages are copied, so that they lead into the copy.
  const from = join(root, folder);
  mkdirSync(join(copy, folder), { recursive: true });
  for (const name of readdirSync(from))
    if (name === "@mlxts" || name === ".bin")
      cpSync(join(from, name), join(copy, folder, name), { recursive: true, verbatimSymlinks: true });
    else symlinkSync(join(from, name), join(copy, folder, name));
};

beforeAll(() => {
  rmSync(copy, { recursive: true, force: true });
  const listed = spawnSync("git", ["ls-files", "-co", "--exclude-standard"], { cwd: root, encoding: "utf8" });
  for (const file of listed.stdout.trim().split("\n")) cpSync(join(root, file), join(copy, file));
  folderLinks("node_modules");
  for (const place of ["packages", "apps"])
    for (const name of readdirSync(join(root, place))) {
      const folder = join(place, name);
      const inside = readdirSync(join(root, folder));
      if (inside.includes("node_modules")) folderLinks(join(folder, "node_modules"));
      if (inside.includes("prebuilds"))
        cpSync(join(root, folder, "prebuilds"), join(copy, folder, "prebuilds"), { recursive: true });
    }
});
afterAll(() => rmSync(copy, { recursive: true, force: true }));

// Each step needs those before it.
describe("a new op, in a copy of the repository", { sequential: true, timeout: 900_000 }, () => {
  it("is written", () => {
    const { ok, said } = run(process.execPath, ...source("scripts/generate/new_op.ts", "norms", "layer_norm"));
    expect({ ok, said }).toEqual({ ok: true, said: expect.stringContaining("layerNorm is an identity op now") });
    // Eight places by hand.
    expect(said.match(/^ {2}(packages\/norms|scripts\/check)\/.*$/gm)).toHaveLength(8);
  });

  it("is not written twice, nor outside of packages of ops, nor under another kind of name", () => {
    const say = (...args: string[]) => run(process.execPath, ...source("scripts/generate/new_op.ts", ...args)).said;
    expect(say("norms", "layer_norm")).toContain("packages/norms/src/layer_norm.ts exists");
    expect(say("models", "scale")).toContain('no package of ops is called "models"');
    expect(say("norms", "layerNorm")).toContain("the op's name must be one, in snake_case");
  });

  it("leaves no generated file behind", () =>
    succeeds(process.execPath, ...source("scripts/generate/generate.ts", "--check")));
  it("has right types", () => succeeds(bin("tsc"), "-p", "tsconfig.json"));
  it("is formatted and linted", () =>
    succeeds(bin("biome"), "check", "--error-on-warnings", "--vcs-enabled=false", "."));
  it("has no unused code", () => succeeds(bin("knip")));
  // Without optimization: the other kernels are those of the repository, and the new one is an identity.
  it("compiles", () => {
    const build = runWith(
      { CMAKE_BUILD_TYPE: "None" },
      process.execPath,
      "scripts/native/build-native.mjs",
      "--only",
      "norms",
      "--levels",
      "runnable",
    );
    expect(build).toEqual({ ok: true, said: expect.any(String) });
  });

  it("passes its suite, and everything else that looks at all ops", () => {
    const { ok, said } = run(
      bin("vitest"),
      "run",
      "packages/norms/test/layer_norm.suite.ts",
      "packages/norms/test/errors.test.ts",
      "apps/cli/test/every_op.test.ts",
      "scripts/check/editor_help.test.ts",
      // The other ops are those of the repository, where the same tests have looked at them.
      "--testNamePattern=layerNorm|layer_norm|errors|ops",
    );
    expect({ ok, said }).toEqual({ ok: true, said: expect.stringContaining("passed") });
  });

  it("has cases of its own in the list that runs on all devices", () => {
    const { ok, said } = runWith(
      { MLXTS_RING: "1", MLXTS_TEST_PACKAGES: "norms" },
      bin("vitest"),
      "run",
      "scripts/check/kernel_cases.test.ts",
    );
    expect({ ok, said }).toEqual({ ok: true, said: expect.stringContaining("passed") });
    expect(readFileSync(join(copy, "scripts", "check", "kernel_cases.json"), "utf8")).toContain("layerNorm bf16 [257]");
  });

  it.skipIf(clangMissing())("runs on simulated Metal", () => {
    const { ok, said } = runWith(
      { MLXTS_DEVICE: "metal", MLXTS_METAL_SIM: "1" },
      bin("vitest"),
      "run",
      "packages/norms/test/layer_norm.suite.ts",
      "scripts/metal/metal_lint.test.ts",
      // The other kernels are those of the repository, where the same test has looked at them.
      "--testNamePattern=layerNorm|layer_norm",
      "--testTimeout=300000",
    );
    expect({ ok, said }).toEqual({ ok: true, said: expect.stringMatching(/layerNorm on metal|2 passed/) });
  });
});
