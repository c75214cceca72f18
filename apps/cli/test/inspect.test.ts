import { mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Device, writeSafetensors } from "@mlxts/core";
import { loadModel } from "@mlxts/models";
import { unpackedCheckpoint } from "@mlxts/test-kit/goldens";
import { describe, expect, it } from "vitest";
import { inProcess, testFolder, tiny } from "./helpers.ts";

const folder = testFolder();
const weights = 5264152;

/** The tiny checkpoint with another config.json. */
function withConfig(name: string, config: string, from = tiny): string {
  const path = join(folder, name);
  mkdirSync(path);
  symlinkSync(join(from, "model.safetensors"), join(path, "model.safetensors"));
  writeFileSync(join(path, "config.json"), config);
  return path;
}

/** The lines of `inspect`, by their titles. */
async function inspected(path: string, ...options: string[]): Promise<Record<string, string>> {
  const { status, stdout, stderr } = await inProcess("inspect", path, ...options);
  expect([status, stderr]).toEqual([0, ""]);
  const lines = stdout.trimEnd().split("\n");
  return Object.fromEntries(lines.map((line) => [line.slice(0, 12).trim(), line.slice(12)]));
}

const configOf = (path: string) => JSON.parse(readFileSync(join(path, "config.json"), "utf8"));

describe("inspect", () => {
  it("shows a model that can be run", async () => {
    expect(await inspected(tiny, "--activation-dtype", "f32")).toEqual({
      checkpoint: tiny,
      "model type": "qwen3_5_text",
      runs: "yes, with mlxts",
      parameters: "5,264,152",
      quantized: "no",
      tensors: "55 (55 BF16)",
      "on disk": "10,534,256 bytes (10.0 MiB)",
      cache:
        "1,024 bytes (1.0 KiB) for each token, and 823,296 bytes (804.0 KiB) for each sequence, with f32 activations",
      memory: "15,551,856 bytes (14.8 MiB) for 4,096 tokens: weights, and 5,017,600 bytes (4.8 MiB) of state",
    });
    expect(JSON.parse((await inProcess("inspect", tiny, "--json")).stdout)).toMatchObject({
      modelType: "qwen3_5_text",
      elements: weights,
      parameters: weights,
      quantization: null,
      runs: true,
      reason: null,
    });
  });

  it("shows the memory for a context, sequences side by side and a dtype of activations", async () => {
    const options = ["--context", "100", "--sequences", "3", "--activation-dtype", "bf16"];
    // 2 · 2 · 64 keys and values of one layer; of three layers 4 · 128 · 128 states in f32 and 3 · 1024 inputs.
    const [perToken, perSequence] = [2 * 2 * 64 * 2, 3 * (4 * 128 * 128 * 4 + 3 * 1024 * 2)];
    const stateBytes = 3 * (100 * perToken + perSequence);
    expect(await inspected(tiny, ...options)).toMatchObject({
      cache: "512 bytes for each token, and 804,864 bytes (786.0 KiB) for each sequence, with bf16 activations",
      memory:
        "13,102,448 bytes (12.5 MiB) for 3 sequences of 100 tokens: weights, and 2,568,192 bytes (2.4 MiB) of state",
    });
    expect(JSON.parse((await inProcess("inspect", tiny, "--json", ...options)).stdout)).toMatchObject({
      experts: null,
      latents: null,
      activeParameters: weights,
      cache: { bytesPerToken: perToken, bytesPerSequence: perSequence },
      memory: { context: 100, sequences: 3, activationDtype: "bf16", weightBytes: 10534256, stateBytes },
    });
    const { memory } = JSON.parse((await inProcess("inspect", tiny, "--json")).stdout);
    using device = Device.open("cpu");
    using model = await loadModel(device, tiny, { activationDtype: "auto" });
    expect(memory.activationDtype).toBe(model.activationDtype);
    const { status, stderr } = await inProcess("inspect", tiny, "--context", "0");
    expect([status, stderr]).toEqual([2, expect.stringContaining("`--context` must be an integer from 1 to 16777216")]);
  });

  it("shows experts, and the weights that compute one token", async () => {
    // Of 8 experts in each of 4 layers, matrices of 128 · 256, a token goes to 2.
    const [all, active] = [7_501_592, 7_501_592 - 4 * 6 * 3 * 128 * 256];
    const found = await inspected(unpackedCheckpoint("tiny-qwen3-next"));
    expect(found).toMatchObject({
      runs: "yes, with mlxts",
      parameters: all.toLocaleString("en"),
      experts: "8 in each of 4 layers, of which a token goes to 2, and to shared experts",
      active: `${active.toLocaleString("en")} parameters for each token`,
    });
    expect(found).not.toHaveProperty("latents");
  });

  it("counts packed words as the weights they hold", async () => {
    const four = await inspected(`${tiny}-4bit`);
    expect(four).toMatchObject({
      runs: "yes, with mlxts",
      parameters: "5,264,152",
      quantized: "4 bits, groups of 64, affine: 5,249,024 weights in 82,016 groups, 32 modules",
      tensors: "119 (87 BF16, 32 U32)",
    });
    const report = JSON.parse((await inProcess("inspect", `${tiny}-4bit`, "--json")).stdout);
    expect(report).toMatchObject({
      parameters: weights,
      quantization: {
        bits: 4,
        groupSize: 64,
        mode: "affine",
        kinds: [{ bits: 4, groupSize: 64, modules: 32, groups: 82016, weights: 5249024 }],
      },
    });
    expect((await inProcess("inspect", `${tiny}-4bit`, "--tensors")).stdout).toContain(
      "U32  [4096, 32]  language_model.model.embed_tokens.weight",
    );
    const eight = join(folder, "eight");
    expect(await inProcess("quantize", tiny, eight, "--bits", "8", "--group-size", "32")).toMatchObject({ status: 0 });
    expect(await inspected(eight)).toMatchObject({
      parameters: "5,264,152",
      quantized: "8 bits, groups of 32, affine: 5,249,024 weights in 164,032 groups, 32 modules",
    });
  });

  it("shows modules of different widths on separate lines", async () => {
    const packed = (module: string, words: number, groups: number) =>
      [
        [`${module}.weight`, { dtype: "u32", shape: [2, words], data: new Uint32Array(2 * words) }],
        [`${module}.scales`, { dtype: "f32", shape: [2, groups], data: new Float32Array(2 * groups) }],
        [`${module}.biases`, { dtype: "f32", shape: [2, groups], data: new Float32Array(2 * groups) }],
      ] as const;
    const dir = join(folder, "mixed");
    mkdirSync(dir);
    const quantization = { bits: 4, group_size: 64, b: { bits: 8, group_size: 32 } };
    writeFileSync(join(dir, "config.json"), JSON.stringify({ quantization }));
    writeSafetensors(join(dir, "model.safetensors"), [
      ...packed("a", 8, 1),
      ...packed("b", 16, 2),
      ["norm.weight", { dtype: "f32", shape: [3], data: new Float32Array(3) }],
      ["positions", { dtype: "i32", shape: [100], data: new Int32Array(100) }],
    ]);
    const { stdout } = await inProcess("inspect", dir);
    expect(stdout).toContain("parameters  259\n");
    expect(stdout).toContain(
      "quantized   4 bits, groups of 64, affine: 128 weights in 2 groups, 1 module\n" +
        "            8 bits, groups of 32, affine: 128 weights in 4 groups, 1 module\n",
    );
  });

  it("says why a model cannot be run", async () => {
    const config = configOf(tiny);
    const llama = withConfig("llama", JSON.stringify({ ...config, model_type: "llama" }));
    const reason = "loadModel: `config\\.model_type` must be one of qwen3_5, qwen3_5_text(, \\w+)*, got llama$";
    expect(await inspected(llama)).toMatchObject({
      "model type": "llama",
      runs: expect.stringMatching(`^no, because ${reason}`),
      parameters: "5,264,152",
    });
    expect(JSON.parse((await inProcess("inspect", llama, "--json")).stdout)).toMatchObject({
      runs: false,
      cache: null,
      memory: null,
      reason: expect.stringMatching(`^${reason}`),
    });
    const narrow = withConfig("narrow", JSON.stringify({ ...config, hidden_size: 64 }));
    expect((await inspected(narrow)).runs).toMatch(/^no, because .*must have shape/);
    const gptq = withConfig(
      "gptq",
      JSON.stringify({ ...config, quantization_config: { quant_method: "gptq", bits: 4 } }),
    );
    const unknown =
      'quantizationOf: quant_method "gptq" is not supported — quantize the original weights with `mlxts quantize`';
    expect(await inspected(gptq)).toMatchObject({
      runs: `no, because ${unknown}`,
      parameters: `unknown: ${unknown}`,
      quantized: `unknown: ${unknown}`,
      tensors: "55 (55 BF16)",
    });
    const plain = withConfig("plain", JSON.stringify(config), `${tiny}-4bit`);
    expect((await inspected(plain)).parameters).toMatch(
      /^unknown: language_model\..*: has `scales`, but config.json does not say how it is quantized$/,
    );
    const broken = withConfig("broken", "{");
    expect((await inspected(broken)).runs).toMatch(/^no, because .*broken\/config.json is not JSON: /);
    expect((await inspected(broken))["model type"]).toBe("unknown");
    const untyped = withConfig("untyped", JSON.stringify({ ...config, model_type: undefined }));
    expect((await inspected(untyped))["model type"]).toBe("unknown");
    const bare = withConfig("bare", "");
    rmSync(join(bare, "config.json"));
    expect(await inspected(bare)).toMatchObject({
      "model type": "(no config.json)",
      runs: `no, because loadModel: ${bare} has no config.json`,
    });
    expect(await inspected(join(tiny, "model.safetensors"))).toMatchObject({
      "model type": "(no config.json)",
      runs: "no, because it is a single file; a model is a directory with config.json",
      parameters: "5,264,152",
    });
  });

  it("fails where a file is there and cannot be read", async () => {
    const path = withConfig("loop", "");
    rmSync(join(path, "config.json"));
    symlinkSync("config.json", join(path, "config.json"));
    const failed = (reason: string) => ({ status: 1, stdout: "", stderr: `Io: ${reason}\n` });
    const loop = `cannot open ${path}/config.json: ELOOP: too many symbolic links encountered`;
    expect(await inProcess("inspect", path)).toEqual(failed(loop));
    expect(await inProcess("inspect", path, "--json")).toEqual(failed(loop));
    rmSync(join(path, "config.json"));
    mkdirSync(join(path, "config.json"));
    expect(await inProcess("inspect", path)).toEqual(failed(`${path}/config.json is not a file`));
    const tokenizer = withConfig("tokenizer loop", JSON.stringify(configOf(tiny)));
    symlinkSync("tokenizer.json", join(tokenizer, "tokenizer.json"));
    const reason = `cannot open ${tokenizer}/tokenizer.json: ELOOP: too many symbolic links encountered`;
    expect((await inspected(tokenizer)).runs).toBe(`no, because ${reason}`);
    expect((await inProcess("generate", tokenizer, "--ids", "1")).stderr).toBe(`Io: ${reason}\n`);
  });

  it("says that a checkpoint without a tokenizer runs from ids only", async () => {
    const path = withConfig("silent", JSON.stringify(configOf(tiny)));
    expect((await inspected(path)).runs).toBe("yes, with mlxts, but from token ids only: it has no tokenizer.json");
    expect(await inProcess("generate", path, "--prompt", "a")).toEqual({
      status: 1,
      stdout: "",
      stderr: `Io: Tokenizer: ${path} has no tokenizer.json\n`,
    });
    writeFileSync(join(path, "tokenizer.json"), "{}");
    const malformed = `${path}/tokenizer.json: \`model\` must be an object`;
    expect((await inspected(path)).runs).toBe(`no, because ${malformed}`);
    expect((await inProcess("generate", path, "--ids", "1")).stderr).toBe(`Io: ${malformed}\n`);
  });
});
