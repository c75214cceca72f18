import { execFileSync } from "node:child_process";
import { readFileSync, rmSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createSafetensors, Device, MlxtsError, readSafetensors } from "@mlxts/core";
import fc from "fast-check";
import { afterAll, describe, expect, it } from "vitest";
import { loadModel, Tokenizer } from "../src/index.ts";
import { temporary, tiny, tiny4bit, withConfig } from "./fixtures.ts";

const device = Device.open("cpu");
afterAll(() => device.dispose());

const load = (directory: string) => loadModel(device, directory);

/** A copy of the tiny checkpoint with tensors changed, renamed or left out. */
function withTensors(change: (name: string, shape: readonly number[]) => readonly number[] | undefined): string {
  const folder = withConfig(() => {});
  const path = join(folder, "model.safetensors");
  const { tensors } = readSafetensors(path);
  const kept = [...tensors].flatMap(([name, tensor]) => {
    const shape = change(name, tensor.shape);
    return shape ? [{ name, ...tensor, shape }] : [];
  });
  const writer = createSafetensors(path, kept);
  for (const { name, data } of kept) writer.write(name, data);
  writer.close();
  return folder;
}

describe("loadModel refuses", () => {
  it("a folder that does not exist, and one without a config", async () => {
    await expect(load(join(tiny, "missing"))).rejects.toMatchObject({ code: "Io" });
    const empty = temporary();
    await expect(load(empty)).rejects.toMatchObject({ code: "Io", message: `loadModel: ${empty} has no config.json` });
  });

  it("paths that are not directories, and says what they are", async () => {
    const missing = join(tiny, "missing");
    await expect(load(missing)).rejects.toThrow(`loadModel: ${missing} does not exist`);
    await expect(load("Qwen/Qwen3.5-4B")).rejects.toThrow(
      "loadModel: Qwen/Qwen3.5-4B does not exist — if it is a model's name on the Hugging Face hub, download it first (`hf download Qwen/Qwen3.5-4B --local-dir DIR`) and give that directory",
    );
    const file = join(tiny, "config.json");
    await expect(load(file)).rejects.toThrow(
      `loadModel: ${file} is a file — give the checkpoint's directory, which has a config.json`,
    );
    await expect(load("a\0b")).rejects.toMatchObject({ code: "Io" });
    await expect(load(`${file}/x`)).rejects.toMatchObject({ code: "Io" });
    await expect(load(7 as never)).rejects.toThrow("loadModel: `directory` must be a string, got 7");
    await expect(loadModel(undefined as never, tiny)).rejects.toThrow(
      "loadModel: `device` must be a Device, got undefined",
    );
    await expect(loadModel(device, tiny, { dtype: "f16" } as never)).rejects.toThrow(
      "loadModel: `dtype` must be one of activationDtype, expertMemory, approximate, map, onProgress, signal, got an unknown option",
    );
  });

  it("Git LFS pointers, pipes and text that is not UTF-8 in place of a config", async () => {
    const folder = withConfig(() => {});
    const path = join(folder, "config.json");
    writeFileSync(path, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
    await expect(load(folder)).rejects.toThrow(
      `${path} is a Git LFS pointer, not the file that it stands for: run \`git lfs pull\` in its directory`,
    );
    writeFileSync(path, Buffer.from([0x7b, 0xff, 0x7d]));
    await expect(load(folder)).rejects.toThrow(`${path} is not text in UTF-8`);
    writeFileSync(path, '{\n  "a": 1,\n  oops\n}');
    await expect(load(folder)).rejects.toMatchObject({ code: "Io", message: expect.stringContaining("line 3") });
    if (process.platform === "win32") return;
    rmSync(path);
    execFileSync("mkfifo", [path]);
    await expect(load(folder)).rejects.toThrow(`${path} is not a file`);
  });

  it("a JSON file with too many values, before it fills the memory", async () => {
    const folder = withConfig(() => {});
    const path = join(folder, "generation_config.json");
    writeFileSync(path, `{"a":[${"{},".repeat(9_000_000)}0]}`);
    await expect(load(folder)).rejects.toThrow(`${path} has more than 16777216 values`);
    writeFileSync(path, "");
    truncateSync(path, 2 ** 31);
    await expect(load(folder)).rejects.toThrow(`${path} has 2147483648 bytes, more than the 134217728 that are read`);
  });

  it("deeply nested JSON", async () => {
    const folder = withConfig(() => {});
    const deep = `${"[".repeat(100_000)}${"]".repeat(100_000)}`;
    for (const name of ["config.json", "generation_config.json"]) {
      writeFileSync(join(folder, name), `{"eos_token_id":${deep},"model_type":${deep}}`);
      await expect(load(folder)).rejects.toMatchObject({ code: expect.stringMatching(/^(InvalidArgument|Io)$/) });
    }
  });

  it("to continue after an abort, and leaves nothing behind", async () => {
    using own = Device.open("cpu");
    const reason = new Error("enough");
    await expect(loadModel(own, tiny, { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    const controller = new AbortController();
    const loading = loadModel(own, tiny, { signal: controller.signal });
    controller.abort(reason);
    await expect(loading).rejects.toBe(reason);
    await own.encoder().commit();
    expect(own.counters).toMatchObject({ liveBuffers: 0, liveBytes: 0 });
    (await loadModel(own, tiny, { signal: new AbortController().signal })).dispose();
  });

  it("because of its progress, which is told once where weights are mapped", async () => {
    using own = Device.open("cpu");
    const reports: number[][] = [];
    const controller = new AbortController();
    (await loadModel(own, tiny, { onProgress: (...report) => reports.push(report) })).dispose();
    const { size } = statSync(join(tiny, "model.safetensors"));
    expect(reports).toEqual([[size, size]]);
    const reason = new Error("enough");
    const onProgress = () => {
      throw reason;
    };
    await expect(loadModel(own, tiny, { onProgress })).rejects.toBe(reason);
    const abort = () => controller.abort(reason);
    await expect(loadModel(own, tiny, { onProgress: abort, signal: controller.signal })).rejects.toBe(reason);
    await expect(loadModel(own, tiny, { onProgress: 1 as never })).rejects.toThrow(
      "loadModel: `onProgress` must be a function, got 1",
    );
    await own.encoder().commit();
    expect(own.counters).toMatchObject({ liveBuffers: 0, liveBytes: 0 });
  });

  it("an unknown model type", async () => {
    const folder = withConfig((config) => Object.assign(config, { model_type: "llama" }));
    await expect(load(folder)).rejects.toThrow(
      /^loadModel: `config\.model_type` must be one of qwen3_5, qwen3_5_text, qwen3_5_moe, .*qwen3_next.*, got llama$/,
    );
  });

  it.each([
    ["hidden_size", "256", 'loadModel: `config.hidden_size` must be a number, got "256"'],
    ["hidden_size", -1, "loadModel: `config.hidden_size` must be an integer from 1 to 2147483647, got -1"],
    [
      "num_attention_heads",
      3,
      "loadModel: `config.num_attention_heads` must be a multiple of num_key_value_heads (2), got 3",
    ],
    [
      "linear_num_value_heads",
      3,
      "loadModel: `config.linear_num_value_heads` must be a multiple of linear_num_key_heads (2), got 3",
    ],
    [
      "num_hidden_layers",
      2_000_000_000,
      "loadModel: `config.num_hidden_layers` must be an integer from 1 to 4096, got 2000000000",
    ],
    [
      "layer_types",
      ["linear_attention"],
      "loadModel: `config.layer_types` must be 4 of linear_attention, full_attention, got [linear_attention]",
    ],
    ["hidden_act", "gelu", "loadModel: `config.hidden_act` must be one of silu, got gelu"],
    [
      "rope_parameters",
      { rope_type: "yarn" },
      "loadModel: `config.rope_parameters.rope_type` must be one of default, got yarn",
    ],
    ["tie_word_embeddings", "yes", "loadModel: `config.tie_word_embeddings` must be a boolean, got yes"],
  ])("a config whose %s is %j", async (field, value, message) => {
    await expect(load(withConfig((config) => Object.assign(config, { [field]: value })))).rejects.toThrow(message);
  });

  it("a config that is not JSON", async () => {
    const folder = withConfig(() => {});
    writeFileSync(join(folder, "config.json"), "{");
    await expect(load(folder)).rejects.toMatchObject({ code: "Io", message: expect.stringContaining("is not JSON") });
  });

  it("sizes that differ from those of the tensors", async () => {
    const folder = withConfig((config) => Object.assign(config, { intermediate_size: 512 }));
    await expect(load(folder)).rejects.toMatchObject({
      code: "Safetensors",
      message: expect.stringContaining(
        "tensor model.layers.0.mlp.gate_proj.weight must have shape [512, 256], got [768, 256]",
      ),
    });
  });

  it("missing and misshapen tensors", async () => {
    const missing = withTensors((name, shape) => (name === "model.layers.2.linear_attn.A_log" ? undefined : shape));
    await expect(load(missing)).rejects.toMatchObject({
      code: "Safetensors",
      message: expect.stringContaining("model.layers.2.linear_attn.A_log is missing"),
    });
    const misshapen = withTensors((name, shape) => (name === "model.norm.weight" ? [2, 128] : shape));
    await expect(load(misshapen)).rejects.toMatchObject({
      code: "Safetensors",
      message: expect.stringContaining("model.norm.weight must have shape [256], got [2, 128]"),
    });
  });

  it("truncated weights and missing shards", async () => {
    const truncated = withConfig(() => {});
    truncateSync(join(truncated, "model.safetensors"), 5_000_000);
    await expect(load(truncated)).rejects.toMatchObject({ code: "Safetensors" });
    const sharded = withConfig(() => {});
    rmSync(join(sharded, "model.safetensors"));
    writeFileSync(
      join(sharded, "model.safetensors.index.json"),
      JSON.stringify({ weight_map: { "model.norm.weight": "model-00001-of-00002.safetensors" } }),
    );
    await expect(load(sharded)).rejects.toMatchObject({
      code: "Safetensors",
      message: expect.stringContaining("model-00001-of-00002.safetensors"),
    });
  });

  it("a quantization config that contradicts the tensors", async () => {
    const wrongBits = withConfig(
      (config) => Object.assign(config, { quantization: { bits: 8, group_size: 64 } }),
      tiny4bit,
    );
    await expect(load(wrongBits)).rejects.toMatchObject({ code: "QuantConfig" });
    const none = withConfig((config) => Object.assign(config, { quantization: { bits: 4, group_size: 7 } }), tiny4bit);
    await expect(load(none)).rejects.toMatchObject({ code: expect.stringMatching(/QuantConfig|InvalidArgument/) });
  });

  it("stop tokens outside the vocabulary", async () => {
    const folder = withConfig(() => {});
    writeFileSync(join(folder, "generation_config.json"), JSON.stringify({ eos_token_id: [0, 4096] }));
    await expect(load(folder)).rejects.toThrow(
      "loadModel: `eos_token_id` must be below the vocabulary size 4096, got 4096",
    );
  });

  it("and leaves no buffers behind", async () => {
    using other = Device.open("cpu");
    const folder = withTensors((name, shape) => (name === "model.norm.weight" ? undefined : shape));
    await expect(loadModel(other, folder)).rejects.toMatchObject({ code: "Safetensors" });
    expect(other.counters).toMatchObject({ liveBuffers: 0, liveBytes: 0 });
  });

  it("configs with fields replaced by junk, with a typed error", async () => {
    const config = JSON.parse(readFileSync(join(tiny, "config.json"), "utf8")) as Record<string, unknown>;
    // Without this list the number of layers decides.
    delete config.layer_types;
    const junk = fc.oneof(
      fc.constant(null),
      fc.integer(),
      fc.double(),
      fc.string(),
      fc.boolean(),
      fc.array(fc.integer(), { maxLength: 5 }),
      fc.dictionary(fc.string(), fc.integer(), { maxKeys: 3 }),
    );
    const folder = withConfig(() => {});
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...Object.keys(config)),
        junk,
        fc.constantFrom("quantization", "text_config", undefined),
        junk,
        async (field, value, extra, other) => {
          writeFileSync(
            join(folder, "config.json"),
            JSON.stringify({ ...config, [field]: value, ...(extra && { [extra]: other }) }),
          );
          try {
            (await load(folder)).dispose();
          } catch (error) {
            if (!(error instanceof MlxtsError) && (error as { code?: string }).code !== "InvalidArgument") throw error;
          }
        },
      ),
      { numRuns: 150, seed: 1, interruptAfterTimeLimit: 20_000 },
    );
  });
});

describe("Tokenizer refuses", () => {
  it("a folder without tokenizer.json, and one that holds something else", () => {
    expect(() => new Tokenizer(temporary())).toThrow(MlxtsError);
    const folder = temporary();
    writeFileSync(join(folder, "tokenizer.json"), "{}");
    expect(() => new Tokenizer(folder)).toThrow(MlxtsError);
  });

  it("a chat without a template; with one it renders the chat", () => {
    expect(() => new Tokenizer(tiny).chat([{ role: "user", content: "hi" }])).toThrow(
      "tokenizer.chat: `messages` must have a chat template, got a checkpoint without one — pass a plain prompt",
    );
    const folder = withConfig(() => {});
    writeFileSync(
      join(folder, "chat_template.jinja"),
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    );
    expect(new Tokenizer(folder).chat([{ role: "user", content: "hi" }])).toBe(
      "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    );
  });
});
