import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { suiteCases } from "@mlxts/core/testing";
import { suites } from "@mlxts/norms/testing";
import { withClang } from "@mlxts/test-kit/clang";
import { SOURCE_HOOKS } from "@mlxts/test-kit/source";
import { afterAll, expect, it } from "vitest";
import { Jobs } from "../src/mutant_jobs.ts";
import type { Stage } from "../src/mutant_worker.ts";
import { mutationsOf } from "../src/mutations.ts";
import { project } from "./norms_project.ts";

const { root } = project;
const command = join(root, "packages", "metal-sim", "bin", "metal-sim.mjs");
const addon = join(root, "packages", "core", "prebuilds", `linux-${process.arch}`, "core-metal-sim.node");
const missing = existsSync(addon) ? undefined : "the simulator is not built, run `npm run metal-sim`";

withClang(
  "mutants of Metal kernels",
  () => {
    const jobs = new Jobs(1, { command, compileMs: 8000, nodeArguments: ["--import", SOURCE_HOOKS] });
    afterAll(() => jobs.close());
    const kernel = join(root, "packages", "norms", "native", "l2_norm.metal");
    const header = join(root, "packages", "core", "native", "metal_kernel.h");
    const index = suites
      .flatMap((suite) => suiteCases(suite))
      .findIndex(({ op, dtype, name }) => op === "l2Norm" && dtype === "f32" && /^\[\d+,1025\]/.test(name));

    const judgeOne = (path: string, text: string, stages: Stage[], of: string, symbol: string, found: number) =>
      jobs.judge(
        {
          type: "mutant",
          suites: join(root, "packages", "norms", "test", "suites.ts"),
          texts: { [path]: text },
          groups: [{ cases: [found], symbols: { [of]: [symbol] } }],
          stages,
          stageMs: 60_000,
        },
        () => 2000,
      );
    const judge = (path: string, text: string, stages: Stage[]) =>
      judgeOne(path, text, stages, kernel, "l2_norm_f32", index);

    it("survive where they change nothing", async () => {
      const text = `${readFileSync(kernel, "utf8")}// the same\n`;
      expect(await judge(kernel, text, ["forward", "check", "schedules"])).toEqual({
        type: "survived",
        complete: true,
      });
    });

    it("are killed by a race that check mode finds, and by bits that differ between schedules", async () => {
      const text = readFileSync(header, "utf8");
      const sum = text.slice(0, text.indexOf("threadgroup_sum(")).split("\n").length;
      const mutation = mutationsOf(text).find(({ kind, line }) => kind === "barrier" && line > sum);
      expect(mutation?.what).toBe("remove threadgroup_barrier");
      for (const stage of ["check", "schedules"] as const)
        expect(await judge(header, mutation?.text as string, [stage])).toMatchObject({
          type: "killed",
          by: expect.stringMatching(
            stage === "check"
              ? /^l2Norm f32 .*, check: .*metal_kernel\.h:\d+ by thread/
              : /^l2Norm f32 .*, schedules: `out`/,
          ),
        });
    });

    it("are killed by a race where two sums, one after the other, use the same threadgroup memory", async () => {
      const fused = join(root, "packages", "norms", "native", "fused_post_ff_norm2_end_layer.metal");
      const text = readFileSync(fused, "utf8");
      const shared = text.replace("scratch.second", "scratch.partial");
      expect(shared).not.toBe(text);
      const long = suites
        .flatMap((suite) => suiteCases(suite))
        .findIndex(
          ({ op, dtype, name }) => op === "fusedPostFfNorm2EndLayer" && dtype === "f32" && /,1025\]/.test(name),
        );
      const symbol = "fused_post_ff_norm2_end_layer_f32";
      expect(await judgeOne(fused, text, ["check"], fused, symbol, long)).toMatchObject({ type: "survived" });
      expect(await judgeOne(fused, shared, ["check"], fused, symbol, long)).toMatchObject({
        type: "killed",
        by: expect.stringMatching(/check: .*race/),
      });
    });

    it("are killed by a wrong result, by the compiler, and by not ending", async () => {
      const text = readFileSync(kernel, "utf8");
      const end = text.indexOf("for (");
      const killers = [
        [text.replace("(from + i", "(from + 1 + i"), /, forward: `out`: ratio/],
        [text.replace("for (", "fore ("), /, forward: kernel `l2_norm_f32` does not compile/],
        [`${text.slice(0, end)}for (;;) to[0] += 1;\n${text.slice(end)}`, /^it does not end$/],
      ] as const;
      for (const [mutated, by] of killers)
        expect(await judge(kernel, mutated, ["forward"])).toMatchObject({
          type: "killed",
          by: expect.stringMatching(by),
        });
    });

    it("are made and judged by the command", { timeout: 300_000 }, () => {
      const { status, stdout, stderr } = spawnSync(
        process.execPath,
        [command, "mutants", fileURLToPath(new URL("norms_project.ts", import.meta.url)), "--file", "l2_norm.params.h"],
        { encoding: "utf8" },
      );
      expect(stderr).toBe("");
      expect(stdout).toMatch(
        /l2_norm\.params\.h: (\d+) killed, 0 survived\n\1 mutants, \1 killed, 0 explained, 0 unexplained/,
      );
      expect(status).toBe(0);
    });
  },
  missing,
);
