// Tests of the READMEs: their programs and commands run as a user would run them, on installed packages.
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { writeSafetensors } from "@mlxts/core";
import { firstRing } from "@mlxts/test-kit/rings";
import { transformSync } from "esbuild";
import { describe, expect, it } from "vitest";
import { publishedPackages } from "../check/packages.ts";
import { installedNodes } from "../native/build_tools.mjs";
import { commandsOf, programsOf } from "./readme_blocks.ts";

export interface Place {
  /** The clone. */
  root: string;
  /** A project with all packages installed; made on the first call. */
  project(): string;
  run(command: string, args: string[], cwd: string): { status: number | null; text: string };
}

const README = "README.md";
/** Those of the simulator need its compiler. */
const PACKAGES = publishedPackages.filter((name) => name !== "metal-sim");

const name = (path: string) => path.replace(/^packages\//, "").replace(/\/?README\.md$/, "") || "root";

/** The options of a strict user's project, with the type packages of this clone. */
const compilerOptions = (root: string) => ({
  target: "ES2022",
  lib: ["ES2023", "ESNext.Disposable"],
  module: "NodeNext",
  types: ["node"],
  typeRoots: [join(root, "node_modules", "@types")],
  strict: true,
  noUncheckedIndexedAccess: true,
  exactOptionalPropertyTypes: true,
  skipLibCheck: false,
  noEmit: true,
});

export function readmeTests({ root, project, run }: Place): void {
  const read = (path: string) => readFileSync(join(root, path), "utf8");
  const readmes = [README, ...PACKAGES.map((each) => `packages/${each}/${README}`)];
  const programs = readmes.flatMap((path) =>
    programsOf(read(path)).map((program) => ({ ...program, name: `${name(path)}: ${program.name}`, path })),
  );
  const runnable = programs.filter(({ text }) => !text.startsWith("// src/"));
  const checkpoint = (path: string) =>
    join(root, "fixtures", path.includes("quant4") ? "tiny-qwen3.5-4bit" : "tiny-qwen3.5");
  const file = (index: number, suffix: string) => `readme_${index}.${suffix}`;

  describe("the programs of the READMEs", { timeout: 300_000 }, () => {
    it("are found", () => expect(runnable.length).toBeGreaterThan(20));

    it.skipIf(firstRing)("type-check as strict TypeScript", () => {
      const folder = project();
      runnable.forEach(({ text }, i) => {
        writeFileSync(join(folder, file(i, "mts")), `${text}export {};\n`);
      });
      const files = runnable.map((_, i) => file(i, "mts"));
      writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions: compilerOptions(root), files }));
      const checked = run(join(root, "node_modules", ".bin", "tsc"), ["-p", folder], folder);
      const errors = checked.text.replace(/readme_(\d+)\.mts/g, (_, i) => `[${runnable[Number(i)]?.name}]`);
      expect(errors).toBe("");
      expect(checked.status).toBe(0);
    });

    const nodes = [process.execPath, ...(firstRing ? [] : installedNodes())];
    it.skipIf(nodes.length === 1)("run on Node.js 22 and 24 too (if skipped: `npm run nodes`)", () => {
      const versions = nodes.map((node) => run(node, ["--version"], root).text.split(".")[0]);
      expect(versions).toEqual(expect.arrayContaining(["v22", "v24"]));
    });

    describe.each(nodes.map((node) => [run(node, ["--version"], root).text.trim(), node] as const))(
      "on Node.js %s",
      (_, node) => {
        it.each(runnable.map((program, i) => [program.name, i] as const))("%s", (_, index) => {
          const { language, text, path } = runnable[index] as (typeof runnable)[number];
          // What is marked as JavaScript runs as it stands.
          const code =
            language === "js" ? text : transformSync(text, { loader: "ts", target: "node20", format: "esm" }).code;
          writeFileSync(join(project(), file(index, "mjs")), code);
          const ran = run(node, [file(index, "mjs"), checkpoint(path)], project());
          expect(ran.status, ran.text).toBe(0);
          expect(ran.text).not.toBe("");
        });
      },
    );
  });

  it("the commands of the README run", { timeout: 300_000 }, () => {
    const folder = join(project(), "commands");
    mkdirSync(folder);
    symlinkSync(join(root, "fixtures"), join(folder, "fixtures"));
    writeSafetensors(join(folder, "case.safetensors"), [
      ["x", { dtype: "f32", shape: [1, 4], data: new Float32Array([1, 2, 3, 4]) }],
      ["weight", { dtype: "f32", shape: [4], data: new Float32Array([1, 1, 1, 1]) }],
    ]);
    const commands = commandsOf(read(README)).filter((line) => line.startsWith("node apps/cli/bin/mlxts.mjs"));
    expect(commands.length).toBeGreaterThan(7);
    for (const line of commands) {
      const [, ...args] = [...line.matchAll(/"([^"]*)"|(\S+)/g)].map(
        ([, quoted, plain]) => quoted ?? (plain as string),
      );
      // Every op takes minutes; one will do.
      const more = args[1] === "verify" ? ["--op", "l2Norm"] : [];
      const program = join(project(), "node_modules", "mlxts", "bin", "mlxts.mjs");
      const ran = run(process.execPath, [program, ...args.slice(1), ...more], folder);
      expect(ran.status, `${line}\n${ran.text}`).toBe(0);
    }
  });
}
