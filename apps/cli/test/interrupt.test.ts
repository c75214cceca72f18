import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import {
  closeSync,
  copyFileSync,
  existsSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import { STANDIN } from "@mlxts/test-kit/cuda_standin";
import { SOURCE_HOOKS } from "@mlxts/test-kit/source";
import { describe, expect, it } from "vitest";
import { program, root, testFolder, tiny } from "./helpers.ts";

const folder = testFolder();

/** A checkpoint whose weights are a sparse file of so many tensors of 32 MiB: it takes long to read, and no room on the disk. */
function largeCheckpoint(name: string, count: number): string {
  const path = join(folder, name);
  mkdirSync(path);
  copyFileSync(join(tiny, "config.json"), join(path, "config.json"));
  const [rows, cols] = [4096, 4096];
  const bytes = 2 * rows * cols;
  const header = Object.fromEntries(
    Array.from({ length: count }, (_, i) => [
      `model.layers.${i}.mlp.up_proj.weight`,
      { dtype: "BF16", shape: [rows, cols], data_offsets: [i * bytes, (i + 1) * bytes] },
    ]),
  );
  const json = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  const file = openSync(join(path, "model.safetensors"), "w");
  writeSync(file, Buffer.concat([length, json]));
  ftruncateSync(file, 8 + json.length + count * bytes);
  closeSync(file);
  return path;
}

const large = largeCheckpoint("large", 200);

/** On core's stand-in for NVIDIA's driver copies take long. */
const onStandin = { MLXTS_DEVICE: "cuda", MLXTS_CUDA_DRIVER: STANDIN, MLXTS_CUDA_STANDIN: "delay:150000" };

/** A command that runs until a condition holds, and then gets a signal. */
class Running {
  readonly child: ChildProcess;
  stdout = "";
  stderr = "";
  readonly ended: Promise<{ status: number | null; signal: string | null; stdout: string; stderr: string }>;

  constructor(command: string, args: readonly string[], env: Record<string, string> = {}) {
    this.child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ["pipe", "pipe", "pipe"] });
    this.child.stdout?.on("data", (text) => {
      this.stdout += text;
    });
    this.child.stderr?.on("data", (text) => {
      this.stderr += text;
    });
    this.ended = new Promise((resolve) =>
      this.child.once("close", (status, signal) =>
        resolve({ status, signal, stdout: this.stdout, stderr: this.stderr }),
      ),
    );
  }

  static mlxts = (...args: string[]) => new Running(process.execPath, [program, ...args]);

  async until(what: (running: Running) => boolean): Promise<this> {
    while (!what(this)) {
      if (this.child.exitCode !== null) throw new Error(`it ended: ${this.stdout}${this.stderr}`);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    return this;
  }
}

const partial = () => readdirSync(folder).filter((name) => name.endsWith(".partial"));
const running = (pid: number) => existsSync(`/proc/${pid}`) && !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
/** Children of a process; needs /proc. */
const childrenOf = (pid: number) =>
  readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ").filter(Boolean).map(Number);

/** Whether a model's weights are mapped; needs /proc. */
const loaded = ({ child }: Running) => readFileSync(`/proc/${child.pid}/maps`, "utf8").includes("model.safetensors");

const SIGNALS = [
  ["SIGINT", 130],
  ["SIGTERM", 143],
  ["SIGHUP", 129],
] as const;

describe.each(SIGNALS)("%s", (signal, status) => {
  it("ends quantize without leaving anything", async () => {
    const out = join(folder, `out-${signal}`);
    const quantize = await Running.mlxts("quantize", large, out).until(() => partial().length > 0);
    quantize.child.kill(signal);
    expect(await quantize.ended).toEqual({
      status,
      signal: null,
      stdout: "",
      stderr: `${out}: interrupted, nothing was written\n`,
    });
    expect([existsSync(out), partial()]).toEqual([false, []]);
  });

  it("ends generate with its summary", async () => {
    const args = ["generate", tiny, "--ids", "1,2,3", "--temp", "1", "--max-tokens", "100000000"];
    const generate = await Running.mlxts(...args).until(({ stdout }) => stdout.length > 100);
    generate.child.kill(signal);
    const { stdout, stderr, ...end } = await generate.ended;
    expect(end).toEqual({ status, signal: null });
    expect(stdout.endsWith("\n")).toBe(true);
    expect(stderr).toMatch(/^\nprefill 3 tokens, \d+ tokens\/s; decode \d+ tokens, \d+ tokens\/s; interrupted\n$/);
  });

  it.skipIf(process.platform !== "linux")("ends verify and the process of its cases", async () => {
    const report = join(folder, `report-${signal}.json`);
    const verify = Running.mlxts("verify", "--device", "cpu", "--json", report);
    await verify.until(({ child }) => childrenOf(child.pid as number).length > 0);
    const children = childrenOf(verify.child.pid as number);
    verify.child.kill(signal);
    expect(await verify.ended).toEqual({ status, signal: null, stdout: "", stderr: "" });
    expect(children.filter(running)).toEqual([]);
    expect(existsSync(report)).toBe(false);
  });
});

describe("interrupts", () => {
  it.skipIf(process.platform !== "linux")("generate --json prints what there is", async () => {
    const args = ["generate", tiny, "--ids", "1,2,3", "--max-tokens", "100000000", "--json"];
    const generate = await Running.mlxts(...args).until(loaded);
    generate.child.kill("SIGINT");
    const { stdout, ...end } = await generate.ended;
    expect(end).toEqual({ status: 130, signal: null, stderr: "" });
    expect(JSON.parse(stdout)).toMatchObject({ promptIds: [1, 2, 3], ids: expect.any(Array), finishReason: "aborted" });
  });

  it.skipIf(process.platform !== "linux")("end logits without leaving anything", async () => {
    const out = join(folder, "logits.safetensors");
    const ids = Array.from({ length: 4000 }, (_, i) => i).join(",");
    const logits = await Running.mlxts("logits", tiny, "--ids", ids, "--path", "recurrent", "--out", out).until(loaded);
    logits.child.kill("SIGINT");
    expect(await logits.ended).toEqual({ status: 130, signal: null, stdout: "", stderr: "" });
    expect(readdirSync(folder).filter((name) => name.startsWith("logits"))).toEqual([]);
  });

  // Undisturbed they measure for minutes.
  it.skipIf(process.platform !== "linux").each([
    ["machine", "/bench.", ["--threads", Array(100).fill(1).join(",")]],
    ["op", "/core.node", ["rmsNorm", "--threads", Array(100).fill(1).join(","), "--unverified", "--peers", "none"]],
  ] as const)("end bench %s while it measures", { timeout: 180_000 }, async (what, library, args) => {
    const measuring = ({ child }: Running) => readFileSync(`/proc/${child.pid}/maps`, "utf8").includes(library);
    const bench = await Running.mlxts("bench", what, ...args).until(measuring);
    bench.child.kill("SIGINT");
    expect(await bench.ended).toEqual({ status: 130, signal: null, stdout: "", stderr: "" });
  });

  it("a second one ends the process at once, even if nothing listens to the first", async () => {
    const program = `
      import { interruptible } from ${JSON.stringify(new URL("../src/interrupt.ts", import.meta.url).href)};
      process.on("exit", (code) => console.log("exit", code));
      await interruptible(async () => {
        console.log("ready");
        await new Promise((resolve) => setTimeout(resolve, 60000));
      });`;
    const stubborn = new Running(process.execPath, ["--import", SOURCE_HOOKS, "--input-type=module", "-e", program]);
    await stubborn.until(({ stdout }) => stdout.includes("ready"));
    stubborn.child.kill("SIGINT");
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(stubborn.child.exitCode).toBeNull();
    stubborn.child.kill("SIGTERM");
    expect(await stubborn.ended).toMatchObject({ status: 143, stdout: "ready\nexit 143\n", stderr: "" });
  });

  it("generate ends silently when the reader of its output has gone", async () => {
    const generate = Running.mlxts("generate", tiny, "--ids", "1,2,3", "--temp", "1", "--max-tokens", "100000000");
    await generate.until(({ stdout }) => stdout.length > 10);
    generate.child.stdout?.destroy();
    expect(await generate.ended).toMatchObject({ status: 0, signal: null, stderr: "" });
  });

  it("a full disk is a failure, in one line", async () => {
    if (!existsSync("/dev/full")) return;
    const { status, stderr } = spawnSync(
      "/bin/sh",
      ["-c", `"${process.execPath}" "${program}" op --list > /dev/full`],
      {
        encoding: "utf8",
      },
    );
    expect([status, stderr]).toEqual([1, "mlxts: Error: cannot write: ENOSPC: no space left on device, write\n"]);
  });
});

const script = spawnSync("script", ["--version"], { encoding: "utf8" });
const noTerminal = script.status === 0 && /util-linux/.test(script.stdout) ? undefined : "no `script` of util-linux";
const title = "in a terminal";
describe.skipIf(noTerminal)(noTerminal ? `${title} (skipped: ${noTerminal})` : title, () => {
  /** A Node.js program in a pseudo-terminal, with its output and its keys in this process. */
  const inTerminalWith = (env: Record<string, string>, ...args: string[]) => {
    const words = [process.execPath, ...args].map((word) => `'${word}'`);
    return new Running("script", ["-q", "-e", "-f", "-c", words.join(" "), "/dev/null"], env);
  };
  const inTerminal = (...args: string[]) => inTerminalWith({}, ...args);
  /** Whether the last of two escape sequences is the first one. */
  const lastIs = (text: string, on: string, off: string) => text.lastIndexOf(on) > text.lastIndexOf(off);
  const restored = (text: string) => ({
    used: text.includes("\u001b[?7l") && text.includes("\u001b[?25l"),
    wrap: lastIs(text, "\u001b[?7h", "\u001b[?7l"),
    cursor: lastIs(text, "\u001b[?25h", "\u001b[?25l"),
  });
  const bar = ({ stdout }: Running) => /\d+\/\d+ /.test(stdout);

  it.each([
    ["quantize", [large, join(folder, "in-terminal")]],
    ["verify", ["--device", "cpu"]],
  ])("Ctrl-C gives it back after %s", async (command, args) => {
    const shown = await inTerminal(program, command, ...args).until(bar);
    shown.child.stdin?.write("\u0003");
    const { status, stdout } = await shown.ended;
    expect([status, restored(stdout)]).toEqual([130, { used: true, wrap: true, cursor: true }]);
    expect(partial()).toEqual([]);
  });

  it.skipIf(!existsSync(STANDIN))("Ctrl-C ends the copy of weights to a GPU, and gives it back", async () => {
    const weights = largeCheckpoint("to-gpu", 32);
    for (const args of [
      ["generate", weights, "--ids", "1"],
      ["logits", weights, "--ids", "1", "--out", join(folder, "none.safetensors")],
    ]) {
      const shown = await inTerminalWith(onStandin, program, ...args).until(({ stdout }) =>
        /\/1073 MB of/.test(stdout),
      );
      shown.child.stdin?.write("\u0003");
      const { status, stdout } = await shown.ended;
      expect([status, restored(stdout)]).toEqual([130, { used: true, wrap: true, cursor: true }]);
    }
    const piped = new Running(process.execPath, [program, "generate", weights, "--ids", "1"], onStandin);
    // It prints nothing; its resident memory shows that the copy has begun.
    const pages = () => Number(readFileSync(`/proc/${piped.child.pid}/statm`, "utf8").split(" ")[1]);
    while (pages() * 4096 < 2 ** 28) await new Promise((resolve) => setTimeout(resolve, 20));
    piped.child.kill("SIGINT");
    expect(await piped.ended).toEqual({ status: 130, signal: null, stdout: "", stderr: "" });
  });

  it("Ctrl-C during `npm start` shows the summary before it ends", async () => {
    const demo = [
      join(root, "scripts", "setup", "demo.mjs"),
      "--ids",
      "1,2,3",
      "--temp",
      "1",
      "--max-tokens",
      "100000000",
    ];
    const shown = await inTerminal(...demo).until(({ stdout }) => stdout.length > 100);
    shown.child.stdin?.write("\u0003");
    const { status, stdout } = await shown.ended;
    expect([status, stdout]).toEqual([130, expect.stringMatching(/prefill 3 tokens, .* tokens\/s; interrupted\r\n$/)]);
  });

  it("two Ctrl-C at once do too", async () => {
    const shown = await inTerminal(program, "verify", "--device", "cpu").until(bar);
    shown.child.stdin?.write("\u0003\u0003");
    const { status, stdout } = await shown.ended;
    expect([status, restored(stdout)]).toEqual([130, { used: true, wrap: true, cursor: true }]);
  });
});
