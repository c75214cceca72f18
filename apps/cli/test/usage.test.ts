import { spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeSafetensors } from "@mlxts/core";
import { describe, expect, it } from "vitest";
import { inProcess, mlxts, program, testFolder, tiny } from "./helpers.ts";

const folder = testFolder();
const at = (name: string) => join(folder, name);
mkdirSync(at("empty"));
writeFileSync(at("text"), "hi\n");
writeSafetensors(at("case"), [["x", { dtype: "f32", shape: [1], data: Float32Array.of(1) }]]);

const seed = ["--seed", "1"];
const wrongUsage: [args: string[], message: string][] = [
  [["frobnicate"], "mlxts: unknown command 'frobnicate' — see `mlxts --help`"],
  [["inspct"], "mlxts: unknown command 'inspct' (Did you mean inspect?) — see `mlxts --help`"],
  [["bench", "modl"], "bench: unknown command 'modl' (Did you mean model?) — see `mlxts help bench`"],
  [["--frob"], "mlxts: unknown option '--frob' — see `mlxts --help`"],
  [["--versoin"], "mlxts: unknown option '--versoin' (Did you mean --version?) — see `mlxts --help`"],
  [[""], "mlxts: unknown command '' — see `mlxts --help`"],
  [["a\u001b[2Jb\nc"], "mlxts: unknown command 'a\\u001b[2Jb c' — see `mlxts --help`"],
  [["help", "frob"], "mlxts: unknown command 'frob' — see `mlxts --help`"],
  [["help", "bench", "ops"], "bench: unknown command 'ops' (Did you mean op?) — see `mlxts help bench`"],
  [["help", "op", "verify"], "mlxts: `help` must be followed by one command, got verify"],

  [["devices", "cpu"], "devices: `arguments` must not be given, got cpu"],
  [["devices", "--json=1"], "devices: unknown option '--json=1' (Did you mean --json?) — see `mlxts help devices`"],
  [["devices", "--json", "--json"], "devices: `--json` must be given once, got it twice"],
  [["devices", "--jsn"], "devices: unknown option '--jsn' (Did you mean --json?) — see `mlxts help devices`"],
  [["devices", "-j"], "devices: unknown option '-j' — see `mlxts help devices`"],

  [["inspect"], "inspect: missing required argument 'checkpoint' — see `mlxts help inspect`"],
  [["inspect", ""], 'inspect: `<checkpoint>` must not be empty, got ""'],
  [["inspect", "a", "b"], "inspect: `arguments` must be <checkpoint> and no more, got a b"],

  [["quantize", "a"], "quantize: missing required argument 'out-dir' — see `mlxts help quantize`"],
  [["quantize", "a", "b", "c"], "quantize: `arguments` must be <hf-dir> <out-dir> and no more, got a b c"],
  [["quantize", "a", "b", "--bits", "5"], "quantize: `--bits` must be one of 4, 8, got 5"],
  [["quantize", "a", "b", "--bits"], "quantize: option '--bits <n>' argument missing — see `mlxts help quantize`"],
  [["quantize", "a", "b", "--bits", "four"], "quantize: `--bits` must be one of 4, 8, got four"],
  [["quantize", "a", "b", "--group-size", "16"], "quantize: `--group-size` must be one of 32, 64, 128, got 16"],

  [["generate", tiny], "generate: `--prompt, --chat, --ids` must be given, exactly one of them, got nothing"],
  [
    ["generate", tiny, "--prompt", "a", "--ids", "1"],
    "generate: `--prompt, --chat, --ids` must be given, exactly one of them, got --prompt and --ids",
  ],
  [["generate", tiny, "--prompt", ""], 'generate: `--prompt` must not be empty, got ""'],
  [
    ["generate", "model", "--prompt", "two", "words"],
    "generate: `arguments` must be <checkpoint> and no more, got model words — quote a text of several words",
  ],
  [["generate", tiny, "--ids", ""], 'generate: `--ids` must be integers separated by commas, got ""'],
  [["generate", tiny, "--ids", "1,x"], "generate: `--ids` must be integers separated by commas, got 1,x"],
  [["generate", tiny, "--ids", "1.5"], "generate: `--ids` must be integers separated by commas, got 1.5"],
  [
    ["generate", tiny, "--ids", "x".repeat(200)],
    `generate: \`--ids\` must be integers separated by commas, got ${"x".repeat(120)}…`,
  ],
  [["generate", tiny, "--ids", "1", "--max-tokens", "0"], "generate: `--max-tokens` must be an integer ≥ 1, got 0"],
  [["generate", tiny, "--ids", "1", "--max-tokens", "1.5"], "generate: `--max-tokens` must be an integer ≥ 1, got 1.5"],
  [
    ["generate", tiny, "--ids", "1", "--max-tokens", "1e99"],
    "generate: `--max-tokens` must be an integer ≥ 1, got 1e99",
  ],
  [["generate", tiny, "--max-tokens", "--ids", "1"], "generate: `--max-tokens` must be followed by <n>, got --ids"],
  [["generate", tiny, "--ids", "1", "--temp", "-1"], "generate: `--temp` must be a number ≥ 0, got -1"],
  [["generate", tiny, "--ids", "1", "--temp", "hot"], "generate: `--temp` must be a number ≥ 0, got hot"],
  [["generate", tiny, "--ids", "1", "--temp", "Infinity"], "generate: `--temp` must be a number ≥ 0, got Infinity"],
  [["generate", tiny, "--ids", "1", "--temp="], 'generate: `--temp` must be a number ≥ 0, got ""'],
  [["generate", tiny, "--ids", "1", "--top-p", "1.1"], "generate: `--top-p` must be a number > 0 and ≤ 1, got 1.1"],
  [["generate", tiny, "--ids", "1", "--top-p", "0"], "generate: `--top-p` must be a number > 0 and ≤ 1, got 0"],
  [["generate", tiny, "--ids", "1", "--top-k", "-1"], "generate: `--top-k` must be an integer ≥ 0, got -1"],
  [
    ["generate", tiny, "--ids", "1", "--seed", "4294967296"],
    "generate: `--seed` must be an integer from 0 to 4294967295, got 4294967296",
  ],
  [["generate", tiny, ...seed, "--seed", "2"], "generate: `--seed` must be given once, got 1 and 2"],
  [
    ["generate", tiny, "--ids", "1", "--activation-dtype", "f64"],
    "generate: `--activation-dtype` must be one of f32, f16, bf16, auto, got f64",
  ],
  [
    ["generate", tiny, "--ids", "1", "--approximate", "int4"],
    "generate: `--approximate` must be one of int8-activations, got int4",
  ],

  [["logits", tiny, "--ids", "1"], "logits: `--out` must be given, got nothing"],
  [["logits", tiny, "--out", "x"], "logits: `--ids` must be given, got nothing"],
  [["logits", tiny, "--ids", "1", "--out", ""], 'logits: `--out` must be a path, got ""'],
  [
    ["logits", tiny, "--ids", "1,2", "--every", "3", "--out", at("none")],
    "logits: `--every` must be at most the number of ids, 2, got 3",
  ],
  [
    ["logits", tiny, "--ids", "1", "--out", at("none"), "--path", "fast"],
    "logits: `--path` must be one of auto, recurrent, chunk, folded, materialized, got fast",
  ],

  [["op", "--in", "a"], "op: `name` must be the name of an op, got nothing — `mlxts op --list` names them"],
  [["op", "rmsNorm", "--in", "a"], "op: `--out` must be given to run an op, got nothing"],
  [["op", "rmsNorm", "--out", "a"], "op: `--in` must be given to run an op, got nothing"],
  [["op", "rmsNorm", "add"], "op: `arguments` must be [name] and no more, got rmsNorm add"],
  [["op", "rmsNorm", "--list"], "op: `--list` must stand alone, or with --json, got rmsNorm"],
  [["op", "--list", "--in", "a"], "op: `--list` must stand alone, or with --json, got options of a run"],
  [
    ["op", "rmsNorm", "--json", "--in", at("case"), "--out", at("none")],
    "op: `--json` must be given to list or describe, got a run of an op",
  ],
  [["op", "rmsNorm", "--param", "eps"], "op: `--param` must be key=value, got eps"],
  [
    ["op", "rmsNorm", "--param", "eps=small", "--in", at("case"), "--out", at("none")],
    "rmsNorm: `eps` must be a number, got small",
  ],
  [
    ["op", "rmsNorm", "--param", "rounding=x", "--in", at("case"), "--out", at("none")],
    "rmsNorm: `rounding` must be one of once, before-weight, got x",
  ],
  [
    ["op", "rmsNorm", "--param", "=1", "--in", at("case"), "--out", at("none")],
    "rmsNorm: `param` must be key=value with a key of eps, weightOffset, rounding, got =1",
  ],
  [
    ["op", "gatedDeltaRule", "--in", at("case"), "--out", at("none")],
    "gatedDeltaRule: `scale` must be given, as --param scale=<a finite number>, got nothing",
  ],
  [
    ["op", "gatedDeltaRule", "--param", "scale=1", "--outputs", "snapshots", "--in", at("case"), "--out", at("none")],
    "gatedDeltaRule: `snapshotEvery` must be given, as --param snapshotEvery=<an integer ≥ 1>, got nothing — `snapshots` needs it",
  ],
  [
    ["op", "rmsNorm", "--outputs", "y", "--in", at("case"), "--out", at("none")],
    "rmsNorm: `--outputs` must be names of out, separated by commas, got y",
  ],
  [
    ["op", "rmsNorm", "--outputs", "out,", "--in", at("case"), "--out", at("none")],
    "op: `--outputs` must be names separated by commas, got out,",
  ],

  [["verify", "slice"], "verify: `arguments` must not be given, got slice"],
  [["verify", "--op"], "verify: option '--op <name...>' argument missing — see `mlxts help verify`"],
  [["verify", "--op", "--json", "a"], "verify: `--op` must be followed by <name>, got --json"],
  [["verify", "--op", ""], 'verify: `--op` must be a name, got ""'],
  [["verify", "--device", "vulkan"], "verify: `--device` must be one of cpu, metal, cuda, got vulkan"],
  [["verify", "--json", ""], 'verify: `--json` must be a path, got ""'],
];

const failures: [args: string[], message: string][] = [
  [["inspect", at("none")], `Io: inspect: ${at("none")} does not exist`],
  [
    ["inspect", at("empty")],
    `Safetensors: ${at("empty")}: has neither model.safetensors nor model.safetensors.index.json nor model*.safetensors`,
  ],
  [["inspect", at("text")], `Safetensors: ${at("text")}: has 3 bytes, fewer than the 8 of a header length`],
  [
    ["inspect", join(tiny, "config.json")],
    `Safetensors: ${join(tiny, "config.json")}: is a text in JSON, not a safetensors file`,
  ],
  [["quantize", at("none"), at("new")], `Io: quantize: ${at("none")} does not exist`],
  [["quantize", at("empty"), at("new")], `Io: quantize: ${at("empty")} has no config.json`],
  [
    ["quantize", at("text"), at("new")],
    `Io: quantize: ${at("text")} is a file — give the checkpoint's directory, which has a config.json`,
  ],
  [
    ["quantize", tiny, at("no/where")],
    `Io: quantize: \`<out-dir>\` must be in a directory that exists, got ${at("no/where")}`,
  ],
  [
    ["quantize", tiny, at("text")],
    `InvalidArgument: quantize: \`out-dir\` must be new or an empty directory, got ${at("text")}`,
  ],
  [["generate", at("none"), "--ids", "1"], `Io: loadModel: ${at("none")} does not exist`],
  [["generate", at("empty"), "--ids", "1"], `Io: loadModel: ${at("empty")} has no config.json`],
  [["generate", at("empty"), "--prompt", "a"], `Io: loadModel: ${at("empty")} has no config.json`],
  [
    ["op", "rmsNorm", "--in", at("none"), "--out", at("new")],
    `Io: cannot open ${at("none")}: ENOENT: no such file or directory`,
  ],
  [
    ["generate", at("text"), "--ids", "1"],
    `Io: loadModel: ${at("text")} is a file — give the checkpoint's directory, which has a config.json`,
  ],
  [
    ["generate", tiny, "--chat", "hi"],
    `InvalidArgument: generate: \`<checkpoint>\` must have a chat template for --chat, got ${tiny} without one — use --prompt`,
  ],
  [
    ["generate", tiny, "--ids", "4096"],
    "InvalidArgument: generate: `ids` must be integers from 0 to 4095, got 4096 at position 0",
  ],
  [
    ["logits", tiny, "--ids", "1", "--out", at("no/where")],
    `Io: logits: \`--out\` must be in a directory that exists, got ${at("no/where")}`,
  ],
  [
    ["logits", tiny, "--ids", "1", "--out", folder],
    `Io: logits: \`--out\` must be a file, got the directory ${folder}`,
  ],
  [["logits", tiny, "--ids", "1", "--out", "/dev/null"], "Io: logits: `--out` must be an ordinary file, got /dev/null"],
  [
    ["logits", tiny, "--ids", "1", "--out", join(at("text"), "x")],
    `Io: logits: \`--out\` must be in a directory that exists, got ${at("text")}/x`,
  ],
  [
    ["op", "rmsnorm"],
    "KernelNotFound: op: no op is called rmsnorm (Did you mean rmsNorm?); `mlxts op --list` names them all",
  ],
  [["op", "nothing"], "KernelNotFound: op: no op is called nothing; `mlxts op --list` names them all"],
  [
    ["op", "rmsNorm", "--in", at("case"), "--out", at("none")],
    `InvalidArgument: rmsNorm: \`weight\` must be among the tensors of ${at("case")}, got only x`,
  ],
  [["verify", "--op", "nothing"], "KernelNotFound: verify: no op is called nothing; `mlxts op --list` names them all"],
  [["verify", "--op", "add", "--json", folder], `Io: verify: \`--json\` must be a file, got the directory ${folder}`],
  [
    ["verify", "--op", "add", "--json", at("no/where")],
    `Io: verify: \`--json\` must be in a directory that exists, got ${at("no/where")}`,
  ],
];

describe("the command line refuses", () => {
  it.each(wrongUsage)("%j", async (args, message) => {
    expect(await inProcess(...args)).toEqual({ status: 2, stdout: "", stderr: `${message}\n` });
  });

  it.each(failures)("%j", async (args, message) => {
    expect(await inProcess(...args)).toEqual({ status: 1, stdout: "", stderr: `${message}\n` });
  });

  it("in a process of its own, with the same exit codes", () => {
    expect(mlxts("devices", "cpu")).toEqual({
      status: 2,
      stdout: "",
      stderr: "devices: `arguments` must not be given, got cpu\n",
    });
    expect(mlxts("verify-child")).toEqual({
      status: 2,
      stdout: "",
      stderr: "verify-child: `parent` must be `mlxts verify`, got none\n",
    });
    expect(mlxts("op", "nothing")).toMatchObject({ status: 1, stdout: "" });
  });
});

/** Root may write everywhere: then the commands run as the user `nobody`, if that user can read this repository. */
const account = process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : {};
const asUser = (...args: string[]) => {
  const env = { ...process.env, HOME: tmpdir() };
  const { status, stdout, stderr } = spawnSync(process.execPath, [program, ...args], {
    ...account,
    env,
    encoding: "utf8",
  });
  return { status, stdout, stderr };
};
const noUser =
  process.platform === "win32" || asUser("--version").status !== 0 ? "no account that is refused files" : undefined;
const name = "without permission";
describe.skipIf(noUser)(noUser ? `${name} (skipped: ${noUser})` : name, () => {
  const locked = testFolder();
  chmodSync(locked, 0o755);
  writeFileSync(join(locked, "file"), "", { mode: 0o000 });
  mkdirSync(join(locked, "checkpoint"));
  writeFileSync(join(locked, "checkpoint", "config.json"), "{}", { mode: 0o000 });
  mkdirSync(join(locked, "directory"));
  chmodSync(join(locked, "directory"), 0o555);
  const [file, config, target] = ["file", "checkpoint/config.json", "directory/x"].map((each) => join(locked, each));
  const unwritable = (argument: string, path: string | undefined) =>
    `Io: ${argument} must be a file that can be written, got ${path} — EACCES: permission denied\n`;

  it.each([
    [["op", "add", "--in", `${file}`, "--out", join(tmpdir(), "none")], `Io: cannot open ${file}: EACCES: `],
    [["generate", join(locked, "checkpoint"), "--ids", "1"], `Io: cannot open ${config}: EACCES: `],
    [["logits", tiny, "--ids", "1", "--out", `${target}`], unwritable("logits: `--out`", target)],
    [["verify", "--op", "add", "--json", `${file}`], unwritable("verify: `--json`", file)],
  ])("%j", (args, message) => {
    const { status, stdout, stderr } = asUser(...args);
    expect([status, stdout]).toEqual([1, ""]);
    expect(stderr.startsWith(message), stderr).toBe(true);
    expect(stderr.indexOf("\n")).toBe(stderr.length - 1);
  });
});
