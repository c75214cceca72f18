import { type ChildProcess, spawn } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Device, type DeviceKind, openCheckpoint } from "@mlxts/core";
import { loadModel, type SavedState } from "@mlxts/models";
import { describe, expect, it } from "vitest";
import { bytesReadByStep, repeated } from "../src/bench_measure.ts";
import { decodeRows, memoryRows, prefillRows } from "../src/bench_model_rows.ts";
import { ProcessFailed, runProgram } from "../src/bench_process.ts";
import type { BenchReport } from "../src/bench_report.ts";
import { type LlamaBenchJob, llamaBenchArguments, readLlamaBench } from "../src/llama_bench.ts";
import { inProcess, program, testFolder, tiny } from "./helpers.ts";

const folder = testFolder();
const at = (name: string) => join(folder, name);
const never = new AbortController().signal;
const node = (text: string) => [process.execPath, "-e", text];
const running = (pid: number) => existsSync(`/proc/${pid}`) && !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
const linux = process.platform === "linux";

/** A program that stands for llama-bench: it keeps its arguments in a file, and then runs `text`. */
function fakeLlamaBench(name: string, text: string): string {
  const path = at(name);
  const keep = `require("node:fs").appendFileSync(${JSON.stringify(`${path}.calls`)}, args.join(" ") + "\\n");`;
  writeFileSync(path, `#!${process.execPath}\nconst args = process.argv.slice(2);\n${keep}\n${text}\n`);
  chmodSync(path, 0o755);
  return path;
}

const SMALL = ["--layers", "4", "--vocab", "64", "--threads", "1", "--tokens", "2"];

describe("bytes that a decode step reads", () => {
  it.each<[string, (all: number, experts: number, embedding: number) => number]>([
    // The embedding is the output, too.
    ["tiny-qwen3.5-4bit", (all) => all],
    ["tiny-qwen3.5-moe", (all, experts, embedding) => all - experts / 2 - embedding],
  ])(
    "of %s: scales and biases, too, of experts those that are chosen, of an embedding nothing",
    async (name, expected) => {
      const path = join(tiny, "..", name);
      using device = Device.open("cpu");
      using checkpoint = await openCheckpoint(device, path);
      using model = await loadModel(device, path);
      const bytesOf = (which: RegExp) =>
        checkpoint.names
          .filter((tensor) => which.test(tensor))
          .map((tensor) => checkpoint.info(tensor))
          .map(({ shape, storedDtype }) => shape.reduce((a, b) => a * b, 1) * (storedDtype === "U32" ? 4 : 2))
          .reduce((a, b) => a + b, 0);
      const all = expected(bytesOf(/^(?!mtp)/), bytesOf(/^(?!mtp).*\.experts\./), bytesOf(/embed_tokens/));
      expect(await bytesReadByStep(device, path, model)).toBe(all);
    },
  );
});

describe("bench model", () => {
  it("measures a random model and llama.cpp, and reports what failed", { timeout: 120_000 }, async () => {
    const llama = fakeLlamaBench(
      "llama-bench",
      `if (args.includes("-d") && args[args.indexOf("-d") + 1] !== "0") { console.error("no memory"); process.exit(3); }
       console.log(JSON.stringify([{ build_commit: "abc123", cpu_info: "A CPU", gpu_info: "A GPU", samples_ts: [10, 30, 20] }]));`,
    );
    mkdirSync(at("models"));
    const files = ["--folder", at("models"), "--json", at("report.json"), "--html", at("report.html")];
    const measures = ["--prefill", "8", "--decode-after", "1100", "--rounds", "2", "--activation-dtype", "f32"];
    const args = ["--shape", "qwen3.5-0.8b", ...SMALL, ...measures, "--llama-bench", llama, ...files];
    const { status, stdout, stderr } = await inProcess("bench", "model", ...args);
    expect([status, stderr]).toEqual([0, ""]);
    expect(readdirSync(at("models"))).toEqual([]);
    const report = JSON.parse(readFileSync(at("report.json"), "utf8")) as BenchReport;
    expect(report).toMatchObject({ tool: "mlxts bench model", versions: { "llama.cpp": "abc123" } });
    expect(report.limits.map(({ threads }) => threads)).toEqual([1]);
    expect(report.settings?.model).toContain("random weights of qwen3.5-0.8b, 4 layers");
    expect(report.settings?.["llama.cpp"]).toBe("ran on A CPU");
    const rows = report.rows.map(({ name, case: of, unit }) => [name, of, unit]);
    const memory = linux
      ? [
          ["opening", "time, f32", "ms"],
          ["opening", "memory beside the mapped file / its size, f32", "ratio"],
          ["decode", "memory left by 256 tokens, without caches, f32", "MiB"],
        ]
      : [];
    expect(rows).toEqual([
      ["prefill", "8 tokens, f32", "tokens/s"],
      ["first prefill / later", "8 tokens, f32", "ratio"],
      ["decode", "after 1100 tokens, f32", "tokens/s"],
      ...memory,
    ]);
    const [prefill, , decode] = report.rows;
    expect(prefill?.peers).toEqual([{ name: "llama.cpp", median: 20, least: 10, most: 30, samples: 6 }]);
    expect([prefill?.ours?.samples, decode?.ours?.samples]).toEqual([4, 2]);
    expect([decode?.peers, decode?.note]).toEqual([[], "llama-bench: ended with exit code 3: no memory"]);
    // Its weights stay in caches: nothing is demanded of it.
    expect(report.rows.filter(({ target }) => target !== null)).toEqual([]);
    expect(report.settings?.targets).toBe("none: the weights stay in caches");
    expect(stdout).toContain("| prefill | 8 tokens, f32 | 1 |");
    expect(readFileSync(at("report.html"), "utf8")).toContain("mlxts bench model");
    const calls = readFileSync(`${llama}.calls`, "utf8").trim().split("\n");
    expect(calls.map((call) => call.replace(/^-m \S+model\.gguf /, ""))).toEqual([
      "-p 8 -n 0 -d 0 -r 2 -t 1 -ngl 0 -dev none -o json",
      "-p 8 -n 0 -d 0 -r 2 -t 1 -ngl 0 -dev none -o json",
      // After a failure it is not asked again.
      "-p 0 -n 2 -d 1100 -r 1 -t 1 -ngl 0 -dev none -o json",
    ]);
  });

  it.skipIf(!linux)("leaves nothing behind when it is interrupted", { timeout: 120_000 }, async () => {
    const llama = fakeLlamaBench(
      "hanging",
      `require("node:fs").writeFileSync(${JSON.stringify(at("pid"))}, String(process.pid)); setInterval(() => {}, 1000);`,
    );
    mkdirSync(at("interrupted"));
    const args = ["--shape", "qwen3.5-0.8b", ...SMALL, "--prefill", "8", "--folder", at("interrupted")];
    const child: ChildProcess = spawn(process.execPath, [program, "bench", "model", ...args, "--llama-bench", llama]);
    const ended = new Promise((resolve) => child.once("close", resolve));
    const pid = () => (existsSync(at("pid")) ? Number(readFileSync(at("pid"), "utf8")) : 0);
    while (pid() === 0 && child.exitCode === null) await new Promise((resolve) => setTimeout(resolve, 20));
    expect(readdirSync(at("interrupted")).length).toBe(1);
    child.kill("SIGINT");
    expect(await ended).toBe(130);
    expect([readdirSync(at("interrupted")), running(pid())]).toEqual([[], false]);
  });

  const wrong: [args: string[], status: number, message: string][] = [
    [[], 2, "bench model: `[checkpoint], --shape` must be given, exactly one of them, got nothing"],
    [
      [tiny, "--shape", "qwen3.5-2b"],
      2,
      `bench model: \`[checkpoint], --shape\` must be given, exactly one of them, got ${tiny} and --shape`,
    ],
    [[tiny, "--layers", "2"], 2, "bench model: `--layers` must be given with --shape only, got 2"],
    [[tiny, "--device", "gpu"], 2, "bench model: `--device` must be one of cpu, metal, cuda, got gpu"],
    [[tiny, "--keep"], 2, "bench model: `--keep` must be given with --shape only, got it with a checkpoint"],
    [[tiny, "--gguf", "x"], 2, "bench model: `--gguf` must be given with --llama-bench only, got x"],
    [
      [tiny, "--llama-bench", "x"],
      2,
      "bench model: `--gguf` must be given, for --llama-bench, got nothing — the same model as a GGUF file",
    ],
    [
      [tiny, "--activation-dtype", "f32,f64"],
      2,
      "bench model: `--activation-dtype` must be names of f32, f16, bf16, separated by commas, got f64",
    ],
    [[tiny, "--threads", "1,0"], 2, "bench model: `--threads` must be integers ≥ 1 separated by commas, got 1,0"],
    [[at("none")], 1, `Io: bench model: \`[checkpoint]\` must be a directory, got ${at("none")}`],
    [
      ["--shape", "qwen3.5-2b", "--folder", at("none")],
      1,
      `Io: bench model: \`--folder\` must be a directory, got ${at("none")}`,
    ],
    [
      ["--shape", "qwen3.5-2b", "--llama-bench", folder],
      1,
      `Io: bench model: \`--llama-bench\` must be a program that can be run, got ${folder}`,
    ],
  ];
  it.each(wrong)("refuses %j", async (args, status, message) => {
    expect(await inProcess("bench", "model", ...args)).toEqual({ status, stdout: "", stderr: `${message}\n` });
  });
});

describe("a process of its own", () => {
  it("gives its output, or why it failed", async () => {
    expect(await runProgram(node("console.log(1)"), never)).toBe("1\n");
    const fails = (words: readonly string[]) => expect(runProgram(words, never)).rejects;
    await fails(node("console.error('first'); console.error('why'); process.exit(3)")).toEqual(
      new ProcessFailed("ended with exit code 3: why"),
    );
    await fails([at("no such program")]).toThrow(/ENOENT/);
    if (process.platform !== "win32")
      await fails(node("process.kill(process.pid, 'SIGKILL')")).toEqual(new ProcessFailed("was ended by SIGKILL"));
  });

  it.skipIf(!linux)("is ended with all that it has started", async () => {
    const controller = new AbortController();
    const file = at("grandchild");
    const inner = `require("node:fs").writeFileSync(${JSON.stringify(file)}, String(process.pid)); setInterval(() => {}, 1000)`;
    const outer = `require("node:child_process").spawn(process.execPath, ["-e", ${JSON.stringify(inner)}]); setInterval(() => {}, 1000)`;
    const run = runProgram(node(outer), controller.signal);
    const refused = expect(run).rejects.toThrow("stop");
    while (!existsSync(file) || readFileSync(file, "utf8") === "") await new Promise((done) => setTimeout(done, 20));
    controller.abort(new Error("stop"));
    await refused;
    // The signal has been sent; a busy machine takes its time.
    await expect.poll(() => running(Number(readFileSync(file, "utf8"))), { timeout: 10_000 }).toBe(false);
  });
});

describe("llama-bench", () => {
  it("is asked for prompts, and for tokens after others", () => {
    const args = (job: LlamaBenchJob) => llamaBenchArguments("m", { device: "cpu", threads: 2 }, job).join(" ");
    const onCpu = "-t 2 -ngl 0 -dev none -o json";
    expect(args({ kind: "prefill", tokens: 512, times: 2 })).toBe(`-m m -p 512 -n 0 -d 0 -r 2 ${onCpu}`);
    expect(args({ kind: "decode", after: 512, tokens: 48 })).toBe(`-m m -p 0 -n 48 -d 512 -r 1 ${onCpu}`);
  });

  it.each(["cuda", "metal"] as const)("computes all layers on the GPU beside %s", (device) => {
    const args = llamaBenchArguments("m", { device, threads: 1 }, { kind: "decode", after: 512, tokens: 48 });
    expect(args.join(" ")).toBe("-m m -p 0 -n 48 -d 512 -r 1 -t 1 -ngl 999 -o json");
  });

  it("says what it computed on, and does not compare a CPU with a GPU", () => {
    const output = (rest: object) => JSON.stringify([{ cpu_info: "A CPU", samples_ts: [1], ...rest }]);
    const processor = (text: string, device: DeviceKind) => readLlamaBench(text, device).processor;
    expect(processor(output({ gpu_info: "" }), "cpu")).toBe("A CPU");
    expect(processor(output({ gpu_info: "A GPU" }), "cpu")).toBe("A CPU");
    expect(processor(output({ gpu_info: "A GPU" }), "cuda")).toBe("A GPU");
    expect(() => processor(output({ gpu_info: "" }), "cuda")).toThrow(
      new ProcessFailed("it found no GPU, and ran on the CPU"),
    );
  });

  it.each([
    ["", "is not JSON"],
    ["{}", "has no `samples_ts`"],
    ["[{}]", "has no `samples_ts`"],
    ['[{"samples_ts":[]}]', "has no `samples_ts`"],
    ['[{"samples_ts":[1,0]}]', "has no `samples_ts`"],
    ['[{"samples_ts":["1"]}]', "has no `samples_ts`"],
  ])("may print what is not understood: %s", (output, why) => {
    expect(() => readLlamaBench(output, "cpu")).toThrow(new ProcessFailed(`its output ${why}`));
  });
});

describe("caches of a long sequence", () => {
  it("repeat their rows, in each of their parts; the rest stays", () => {
    const tensor = (shape: number[], ...data: number[]) => ({
      dtype: "f32" as const,
      shape,
      data: Float32Array.from(data),
    });
    const fixed = tensor([1, 2, 1], 5, 6);
    const saved: SavedState = { tokens: 2, tensors: { keys: tensor([1, 2, 2, 1], 1, 2, 3, 4), fixed } };
    const next: SavedState = { tokens: 3, tensors: { keys: tensor([1, 2, 3, 1], 1, 2, 9, 3, 4, 9), fixed } };
    expect(repeated(saved, next, 5)).toEqual({
      tokens: 5,
      tensors: { keys: tensor([1, 2, 5, 1], 1, 2, 1, 2, 1, 3, 4, 3, 4, 3), fixed },
    });
  });
});

describe("targets", () => {
  const setting = {
    device: "cpu" as const,
    threads: 1,
    dtype: "bf16",
    peer: { name: "llama.cpp", tokensPerSecond: [90, 100, 110] },
    hasPeerTargets: true,
    note: null,
  };
  const prefill = { kind: "prefill", tokens: 512, times: 1 } as const;
  const decode = (after: number) => ({ kind: "decode", after, tokens: 48 }) as const;

  it("of prefill: times llama.cpp's speed, and the first pass beside later ones", () => {
    const rows = (laterMs: number, firstMs: number) => prefillRows(prefill, setting, [{ firstMs, laterMs: [laterMs] }]);
    const [slow, late] = rows(512_000 / 169, 5000);
    expect([slow?.target, late?.target]).toEqual([
      { value: 170, text: "1.7 × llama.cpp", met: false },
      { value: 1.2, text: "1.2 × later ones", met: false },
    ]);
    const [fast, early] = rows(512_000 / 171, 3000);
    expect([fast?.target?.met, early?.target?.met]).toEqual([true, true]);
    const [f32] = prefillRows(prefill, { ...setting, dtype: "f32" }, [{ firstMs: 1, laterMs: [1] }]);
    expect(f32?.target?.text).toBe("1.1 × llama.cpp");
  });

  it("of decode: by dtype, threads and tokens before, and the time of reading the weights", () => {
    const rows = (after: number, changes: object, speed = 110, between?: number) => {
      const result = { tokensPerSecond: speed, bytesRead: 1e8, memoryGBs: between };
      return decodeRows(decode(after), { ...setting, ...changes }, [result], { memoryGBs: 20 });
    };
    const text = (after: number, changes: object) => rows(after, changes)[0]?.target?.text;
    expect(text(512, {})).toBe("1.15 × llama.cpp");
    expect(text(512, { threads: 2 })).toBe("1.1 × llama.cpp");
    expect(text(512, { dtype: "f32" })).toBe("1 × llama.cpp");
    expect(text(512, { threads: 3 })).toBeUndefined();
    expect(text(16384, {})).toBe("2 × llama.cpp");
    expect(text(512, { hasPeerTargets: false })).toBeUndefined();
    expect(text(512, { peer: undefined })).toBeUndefined();
    // 100 MB at 20 GB/s: 5 ms, 200 tokens a second.
    const [speed, step] = rows(512, {}, 160);
    expect(speed?.limit).toEqual({ value: 200, of: "reading 100 MB of weights" });
    expect([step?.ours?.median, step?.target]).toEqual([6.25, { value: 6.5, text: "1.3 × the limit", met: true }]);
    expect(rows(512, {}, 150)[1]?.target?.met).toBe(false);
    // What was measured between the steps counts, where there is such a rate.
    expect(rows(512, {}, 150, 10)[1]).toMatchObject({ limit: { value: 10 }, target: { value: 13, met: true } });
    expect(rows(512, { device: "cuda" }, 121)[1]?.target).toMatchObject({ text: "1.67 × the limit", met: true });
    expect(rows(16384, {}).length).toBe(1);
  });

  it("of memory: a part of the file, and nothing for each token", () => {
    const result = { loadMs: 5, weightBytes: 100 * 2 ** 20, tokens: 256 };
    const met = (openedBytes: number, grownBytes: number) =>
      memoryRows(setting, { ...result, openedBytes, grownBytes }).map(({ target }) => target?.met);
    expect(met(4 * 2 ** 20, 0)).toEqual([undefined, true, true]);
    expect(met(6 * 2 ** 20, 2 ** 20)).toEqual([undefined, false, false]);
  });
});
