// Every package can be built, tested and measured by itself, in the workflow of .github too; Turborepo knows what a change
// affects.
import { spawnSync } from "node:child_process";
import { appendFileSync, cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { nativePackages, workspace } from "../native/workspace.mjs";

const root = fileURLToPath(new URL("../..", import.meta.url));
const packages = workspace();

describe("scripts", () => {
  it.each(packages.map(({ name, scripts }) => [name, scripts] as const))("%s has its own", (name, scripts) => {
    // What only tests use, or other packages carry in their bundles, is neither built nor measured.
    const own = ["@mlxts/common", "@mlxts/test-kit"].includes(name) ? ["test"] : ["build", "test", "bench"];
    expect(Object.keys(scripts)).toEqual(expect.arrayContaining(own));
  });

  it("are found by a name of its own", () => {
    const { name } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
    expect(packages.map((each) => each.name)).not.toContain(name);
  });

  it("a package is tested with core's native code and its own", () => {
    expect(nativePackages("packages/norms")).toEqual(["core", "norms"]);
    expect(nativePackages("packages/models")).toEqual(["core", "delta-rule", "mla", "moe", "nn", "norms", "quant4"]);
  });
});

it("npm start compiles the kernels that its model runs, and no others", () => {
  const { scripts } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const folders = scripts.start.match(/packages\/[\w-]+/g);
  const demo = [join(root, "scripts", "setup", "demo.mjs"), "--prompt", "export", "--max-tokens", "3", "--temp", "0.7"];
  const { status, stderr } = spawnSync(process.execPath, demo, {
    encoding: "utf8",
    env: { ...process.env, MLXTS_DEVICE: "cpu", MLXTS_DEBUG: "2" },
  });
  expect(status).toBe(0);
  const symbols = new Set([...stderr.matchAll(/ \w+\/(\w+) {2}\d/g)].map(([, symbol = ""]) => symbol));
  expect(symbols.size).toBeGreaterThan(10);
  const kernels = packages.flatMap(({ folder }) => {
    const native = join(root, folder, "native");
    const files = existsSync(native) ? readdirSync(native).filter((file) => file.endsWith(".cpp")) : [];
    return files.map((file) => ({ folder, name: file.replace(".cpp", "_") }));
  });
  const packageOf = (symbol: string) => kernels.find(({ name }) => symbol.startsWith(name))?.folder;
  expect([...new Set([...symbols].map(packageOf))].sort()).toEqual(folders);
});

describe("the workflow", () => {
  const text = readFileSync(join(root, ".github", "workflows", "ci.yml"), "utf8");
  const listOf = (job: string) => {
    const [, list = ""] = new RegExp(`^  ${job}:\n(?: {4,}.*\n|\n)*? +package:\n((?: +- .*\n)+)`, "m").exec(text) ?? [];
    return [...list.matchAll(/- "(.*)"/g)].map(([, name]) => name).sort();
  };
  const names = (some: typeof packages) => some.map(({ name }) => name).sort();

  it("tests every package", () => {
    expect(listOf("package")).toEqual(names(packages));
  });

  it("tests on a Mac's GPU what has Metal kernels, and the models that are made of them", () => {
    const hasKernels = (folder: string) => {
      const native = join(root, folder, "native");
      return existsSync(native) && readdirSync(native).some((file) => file.endsWith(".metal"));
    };
    expect(listOf("metal")).toEqual(
      names(packages.filter(({ folder, name }) => hasKernels(folder) || name === "@mlxts/models")),
    );
  });
});

describe("turbo run test", () => {
  const copy = mkdtempSync(join(tmpdir(), "mlxts-turbo-"));
  afterAll(() => rmSync(copy, { recursive: true }));

  /** The hash of each task; a task whose hash a run has seen before comes from the cache. */
  function hashes(): Map<string, string> {
    const { stdout, stderr, status } = spawnSync(
      join(root, "node_modules", ".bin", "turbo"),
      ["run", "test", "--dry=json", "--cwd", copy],
      { encoding: "utf8", env: { ...process.env, TURBO_TELEMETRY_DISABLED: "1" }, maxBuffer: 1 << 26 },
    );
    if (status !== 0) throw new Error(stderr);
    const { tasks } = JSON.parse(stdout) as { tasks: { taskId: string; hash: string }[] };
    return new Map(tasks.map(({ taskId, hash }) => [taskId, hash]));
  }

  /** The tasks, of those with a script, that run again after a change of one file. */
  function rerunBy(path: string): string[] {
    const before = hashes();
    appendFileSync(join(copy, path), "\n");
    const changed = [...hashes()].filter(([task, hash]) => hash !== before.get(task)).map(([task]) => task);
    return changed.filter((task) => /#(test|native)$/.test(task)).sort();
  }

  beforeAll(() => {
    const files = ["package.json", "pnpm-lock.yaml", "pnpm-workspace.yaml", "turbo.json", "CMakeLists.txt"];
    const config = ["vitest.config.ts", "tsconfig.base.json"];
    const sources = packages.flatMap(({ folder }) => [`${folder}/package.json`, `${folder}/src`, `${folder}/native`]);
    for (const path of [...files, ...config, ...sources].filter((each) => existsSync(join(root, each)))) {
      mkdirSync(dirname(join(copy, path)), { recursive: true });
      cpSync(join(root, path), join(copy, path), { recursive: true });
    }
  });

  const tests = (...names: string[]) => names.map((name) => `${name}#test`);

  it("runs nothing again where nothing has changed", () => {
    expect(hashes()).toEqual(hashes());
    expect(hashes().size).toBeGreaterThan(packages.length);
  });

  it("runs a package and those that use it again after a change of its source", () => {
    const users = tests("@mlxts/metal-sim", "@mlxts/models", "@mlxts/norms", "mlxts");
    expect(rerunBy("packages/norms/src/rms_norm.ts")).toEqual(users);
    expect(rerunBy("packages/norms/native/rms_norm.cpp")).toEqual([...users, "@mlxts/norms#native"].sort());
    expect(rerunBy("apps/cli/src/main.ts")).toEqual(tests("mlxts"));
  });

  it("builds all kernels again after a change of a header of core", () => {
    const kernels = ["core", ...nativePackages("packages/models", "packages/bench")];
    const rebuilt = rerunBy("packages/core/native/simd.h");
    for (const name of kernels) expect(rebuilt).toContain(`@mlxts/${name}#native`);
  });
});
