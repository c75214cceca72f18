// Experts in every layout of checkpoints, layers without experts, and checkpoints that contradict their config.
import { cpSync, readdirSync, readFileSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Device, type HostTensor, readSafetensors, writeSafetensors } from "@mlxts/core";
import { compare } from "@mlxts/core/testing";
import { fixture, goldens } from "@mlxts/test-kit/goldens";
import fc from "fast-check";
import { afterAll, describe, expect, it } from "vitest";
import { loadModel, quantizeCheckpoint, qwen3NextConfig } from "../src/index.ts";
import { bits, liveBuffers, misalign, prompts as ofQwen3_5, sharded, temporary, tiny } from "./fixtures.ts";
import { lastLogits, recordedPrompts } from "./parity_suite.ts";

const device = Device.open("cpu");
afterAll(() => device.dispose());

const moe = fixture("tiny-qwen3.5-moe");
const [, prompt] = recordedPrompts(goldens("tiny-qwen3.5-moe/reference.safetensors"));
const { ids, logits } = prompt as NonNullable<typeof prompt>;

type Tensors = Map<string, HostTensor>;
type Words = Uint16Array;

const configOf = (folder: string) =>
  JSON.parse(readFileSync(join(folder, "config.json"), "utf8")) as Record<string, unknown>;

/** Rows `begin` … `end − 1` of the first axis of a bf16 tensor, with that axis left out if it is one. */
function rows({ dtype, shape, data }: HostTensor, begin: number, end: number, drop = false): HostTensor {
  const [count = 1, ...rest] = shape;
  const size = (data as Words).length / count;
  const lead = drop ? [] : [end - begin];
  return { dtype, shape: [...lead, ...rest], data: (data as Words).slice(begin * size, end * size) };
}

const joined = (parts: readonly HostTensor[]): HostTensor => {
  const [{ dtype, shape }] = parts as [HostTensor];
  const count = parts.reduce((sum, part) => sum + (part.shape[0] as number), 0);
  const data = Uint16Array.from(parts.flatMap((part) => [...(part.data as Words)]));
  return { dtype, shape: [count, ...shape.slice(1)], data };
};

const take = (tensors: Tensors, name: string): HostTensor => {
  const found = tensors.get(name);
  if (!found) throw new Error(`no tensor ${name}`);
  tensors.delete(name);
  return found;
};

/** A copy of a checkpoint whose tensors and config are changed. */
function changed(from: string, change: (tensors: Tensors, config: Record<string, unknown>) => void): string {
  const folder = temporary();
  const { tensors } = readSafetensors(join(from, "model.safetensors"));
  const config = configOf(from);
  change(tensors, config);
  writeFileSync(join(folder, "config.json"), JSON.stringify(config));
  writeSafetensors(join(folder, "model.safetensors"), [...tensors]);
  return folder;
}

/** The stacks of Hugging Face's layout, layer by layer: each is taken out of the tensors, as gate, up and down. */
function eachStack(tensors: Tensors, use: (module: string, stacks: Record<string, HostTensor[]>) => void): void {
  for (const layer of [0, 1]) {
    const module = `model.language_model.layers.${layer}.mlp`;
    const both = take(tensors, `${module}.experts.gate_up_proj`);
    const down = take(tensors, `${module}.experts.down_proj`);
    const [experts = 0, wide = 0] = both.shape;
    const each = Array.from({ length: experts }, (_, e) => rows(both, e, e + 1, true));
    use(module, {
      gate_proj: each.map((one) => rows(one, 0, wide / 2)),
      up_proj: each.map((one) => rows(one, wide / 2, wide)),
      down_proj: each.map((_, e) => rows(down, e, e + 1, true)),
    });
  }
}

const perExpert = () =>
  changed(moe, (tensors) =>
    eachStack(tensors, (module, stacks) => {
      for (const [name, matrices] of Object.entries(stacks))
        for (const [e, matrix] of matrices.entries()) tensors.set(`${module}.experts.${e}.${name}.weight`, matrix);
    }),
  );

async function logitsOf(folder: string): Promise<Float32Array> {
  using model = await loadModel(device, folder, { activationDtype: "f32" });
  return await lastLogits(model, ids);
}

describe("one model in several layouts gives the same bits", async () => {
  const stacked = await logitsOf(moe);

  it("the recorded ones", () => expect(compare(stacked, logits).ratio).toBeLessThan(1e-5));

  it("a tensor for each matrix of an expert, in one file: nothing is copied", async () => {
    const folder = perExpert();
    const before = device.counters.copiedTensors;
    expect(bits(await logitsOf(folder))).toBe(bits(stacked));
    expect(device.counters.copiedTensors).toBe(before);
  });

  // All experts of a layer in other files than its neighbors'; gate, up and down in turn; everything in no order.
  it.each<[name: string, files: number, fileOf: (name: string, place: number) => number]>([
    ["two files", 2, (name) => Number(/experts\.[23]\./.test(name))],
    ["two files whose tensors are in turn", 2, (_, place) => place % 2],
    [
      "three files, a projection in each",
      3,
      (name) => ["gate", "up", "down"].findIndex((at) => name.includes(`.${at}_`)),
    ],
    ["seven files", 7, (_, place) => (place * 5 + 3) % 7],
  ])("experts of a layer in %s: nothing is copied", async (_, files, fileOf) => {
    const folder = sharded(perExpert(), files, fileOf);
    const before = device.counters.copiedTensors;
    expect(bits(await logitsOf(folder))).toBe(bits(stacked));
    expect(device.counters.copiedTensors).toBe(before);
  });

  it("several files take no more memory than one", async () => {
    const bytesOf = async (folder: string) => {
      using own = Device.open("cpu");
      using _ = await loadModel(own, folder);
      const files = readdirSync(folder).filter((name) => name.endsWith(".safetensors"));
      const mapped = files.reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);
      return own.counters.liveBytes - mapped;
    };
    const one = await bytesOf(perExpert());
    // Starts of two more parts for each of the three projections of two layers, in memory of whole pages at most.
    expect(await bytesOf(sharded(perExpert(), 3, (_, place) => place % 3))).toBeLessThanOrEqual(one + 2 * 3 * 2 * 4096);
  });

  it("files that do not align their tensors, beside one that does", async () => {
    const folder = sharded(perExpert(), 3, (_, place) => place % 3);
    for (const name of ["model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"])
      misalign(join(folder, name));
    const before = device.counters.copiedTensors;
    expect(bits(await logitsOf(folder))).toBe(bits(stacked));
    expect(device.counters.copiedTensors).toBeGreaterThan(before);
  });

  it("mlx-lm's stacks", async () => {
    const folder = changed(moe, (tensors) =>
      eachStack(tensors, (module, stacks) => {
        for (const [name, matrices] of Object.entries(stacks)) {
          const { shape } = matrices[0] as HostTensor;
          tensors.set(`${module}.switch_mlp.${name}.weight`, {
            ...joined(matrices),
            shape: [matrices.length, ...shape],
          });
        }
      }),
    );
    expect(bits(await logitsOf(folder))).toBe(bits(stacked));
  });

  it("and leaves no buffers behind", async () => {
    using other = Device.open("cpu");
    (await loadModel(other, perExpert())).dispose();
    (
      await loadModel(
        other,
        sharded(perExpert(), 3, (_, place) => place % 3),
      )
    ).dispose();
    expect(await liveBuffers(other)).toBe(0);
  });
});

/** The tiny dense model as Qwen3-Next: joined projections; layers 1 and 3 have one expert, which gets all tokens. */
const asQwen3Next = () =>
  changed(tiny, (tensors, config) => {
    Object.assign(config, {
      model_type: "qwen3_next",
      decoder_sparse_step: 2,
      num_experts: 1,
      num_experts_per_tok: 1,
      moe_intermediate_size: config.intermediate_size,
      shared_expert_intermediate_size: 32,
    });
    const zeros = (...shape: number[]): HostTensor => {
      const data = new Uint16Array(shape.reduce((a, b) => a * b));
      return { dtype: "bf16", shape, data };
    };
    const { linear_num_key_heads: keyHeads, linear_key_head_dim: dim } = config as Record<string, number>;
    for (const layer of [0, 1, 2]) {
      const at = `model.layers.${layer}.linear_attn`;
      const [qkv, z, a, b] = ["qkv", "z", "a", "b"].map((name) => take(tensors, `${at}.in_proj_${name}.weight`)) as [
        HostTensor,
        HostTensor,
        HostTensor,
        HostTensor,
      ];
      const part = (of: HostTensor, begin: number, count: number, head: number) => {
        const size = count / (keyHeads as number);
        return rows(of, begin + head * size, begin + (head + 1) * size);
      };
      const heads = [...Array(keyHeads).keys()];
      const keys = (keyHeads as number) * (dim as number);
      const values = z.shape[0] as number;
      const perHead = heads.flatMap((head) => [
        part(qkv, 0, keys, head),
        part(qkv, keys, keys, head),
        part(qkv, 2 * keys, values, head),
        part(z, 0, values, head),
      ]);
      tensors.set(`${at}.in_proj_qkvz.weight`, joined(perHead));
      const gates = heads.flatMap((head) => [b, a].map((of) => part(of, 0, of.shape[0] as number, head)));
      tensors.set(`${at}.in_proj_ba.weight`, joined(gates));
    }
    for (const layer of [1, 3]) {
      const at = `model.layers.${layer}.mlp`;
      for (const name of ["gate", "up", "down"])
        tensors.set(`${at}.experts.0.${name}_proj.weight`, take(tensors, `${at}.${name}_proj.weight`));
      tensors.set(`${at}.gate.weight`, zeros(1, 256));
      tensors.set(`${at}.shared_expert.gate_proj.weight`, zeros(32, 256));
      tensors.set(`${at}.shared_expert.up_proj.weight`, zeros(32, 256));
      tensors.set(`${at}.shared_expert.down_proj.weight`, zeros(256, 32));
      tensors.set(`${at}.shared_expert_gate.weight`, zeros(1, 256));
    }
  });

describe("layers without experts", () => {
  it("a dense model as Qwen3-Next gives what is recorded of it", async () => {
    using model = await loadModel(device, asQwen3Next(), { activationDtype: "f32" });
    expect(model.modelType).toBe("qwen3_next");
    for (const { ids, logits } of ofQwen3_5)
      expect(compare(await lastLogits(model, ids), logits).ratio).toBeLessThan(1e-5);
  });

  it("are those that decoder_sparse_step and mlp_only_layers leave out", () => {
    const base = { ...configOf(tiny), num_experts: 4, num_experts_per_tok: 2 };
    const fields = { moe_intermediate_size: 8, shared_expert_intermediate_size: 8 };
    const layers = (more: object) =>
      qwen3NextConfig({ ...base, ...fields, ...more })
        .hasExperts.map(Number)
        .join("");
    expect(layers({})).toBe("1111");
    expect(layers({ decoder_sparse_step: 2 })).toBe("0101");
    expect(layers({ mlp_only_layers: [0, 3] })).toBe("0110");
    expect(layers({ decoder_sparse_step: 2, mlp_only_layers: [3] })).toBe("0100");
    expect(qwen3NextConfig({ ...base, ...fields, norm_topk_prob: false }).moe?.normalize).toBe(false);
  });
});

describe("loadModel refuses", () => {
  const refused = (folder: string, message: string | RegExp, code = "Safetensors") =>
    expect(loadModel(device, folder)).rejects.toMatchObject({ code, message: expect.stringMatching(message) });
  const withText = (fields: object) => changed(moe, (_, config) => Object.assign(config.text_config as object, fields));
  const at = "model\\.language_model\\.layers\\.1\\.mlp";

  it.each([
    ["num_experts", 5, /gate_up_proj must have shape \[5, 64, 64\], got \[4, 64, 64\]/, "Safetensors"],
    ["num_experts", 0, /num_experts` must be an integer from 1 to 65536, got 0/, "InvalidArgument"],
    ["num_experts", 65537, /num_experts` must be an integer from 1 to 65536, got 65537/, "InvalidArgument"],
    ["num_experts_per_tok", 5, /num_experts_per_tok` must be at most num_experts \(4\), got 5/, "InvalidArgument"],
    ["moe_intermediate_size", 64, /gate_up_proj must have shape \[4, 128, 64\], got \[4, 64, 64\]/, "Safetensors"],
    ["shared_expert_intermediate_size", 33, /shared_expert.gate_proj.weight must have shape \[33, 64\]/, "Safetensors"],
    ["norm_topk_prob", 1, /norm_topk_prob` must be a boolean, got 1/, "InvalidArgument"],
    ["linear_num_key_heads", 3, /`config.text_config.linear_num_value_heads` must be a multiple of/, "InvalidArgument"],
    ["rope_parameters", { rope_type: "yarn" }, /must be one of default, got yarn/, "InvalidArgument"],
  ])("a config whose %s is %j", (field, value, message, code) => refused(withText({ [field]: value }), message, code));

  it("lists of dense layers that are not such", async () => {
    const folder = asQwen3Next();
    for (const list of [[4], [-1], [0.5], "0", [null]]) {
      writeFileSync(join(folder, "config.json"), JSON.stringify({ ...configOf(folder), mlp_only_layers: list }));
      await refused(folder, /mlp_only_layers` must be a list of integers from 0 to 3/, "InvalidArgument");
    }
  });

  it("experts that are missing, of other shapes or of several dtypes", async () => {
    const change = (use: (tensors: Tensors) => void) => changed(perExpert(), use);
    const name = "model.language_model.layers.1.mlp.experts.2.up_proj.weight";
    await refused(
      change((tensors) => tensors.delete(name)),
      new RegExp(`${at}\\.experts\\.2\\.up_proj\\.weight is missing`),
    );
    await refused(
      change((tensors) => tensors.set(name, rows(take(tensors, name), 0, 31))),
      new RegExp(`${at}\\.experts\\.2\\.up_proj\\.weight must have shape \\[32, 64\\], got \\[31, 64\\]`),
    );
    await refused(
      change((tensors) => tensors.set(name, { ...take(tensors, name), dtype: "f16" })),
      new RegExp(`${at}\\.experts\\.2\\.up_proj\\.weight has dtype f16, that of expert 0 is bf16`),
    );
    await refused(
      changed(moe, (tensors) => {
        const down = take(tensors, "model.language_model.layers.1.mlp.experts.down_proj");
        const data = new Int16Array(down.shape.reduce((a, b) => a * b, 1));
        tensors.set("model.language_model.layers.1.mlp.experts.down_proj", { ...down, dtype: "i16", data });
      }),
      new RegExp(`${at}\\.experts\\.down_proj has dtype I16; weights must be F32, F16 or BF16`),
    );
    await refused(
      change((tensors) => tensors.delete("model.language_model.layers.1.mlp.shared_expert_gate.weight")),
      new RegExp(`${at}\\.shared_expert_gate\\.weight is missing`),
    );
  });

  it("shards whose experts contradict each other, are cut off, or lie in another file than the index says", async () => {
    const name = "model.language_model.layers.1.mlp.experts.2.up_proj.weight";
    const files = (change: (tensors: Tensors) => void) =>
      sharded(changed(perExpert(), change), 2, (name) => Number(/experts\.[23]\./.test(name)));
    await refused(
      files((tensors) => tensors.set(name, { ...take(tensors, name), dtype: "f16" })),
      new RegExp(`${at}\\.experts\\.2\\.up_proj\\.weight has dtype f16, that of expert 0 is bf16`),
    );
    const short = files(() => {});
    const second = join(short, "model-00002-of-00002.safetensors");
    truncateSync(second, statSync(second).size - 1);
    await refused(short, /model-00002-of-00002.*data_offsets .* reach past the file's \d+ data bytes/);
    const elsewhere = files(() => {});
    const indexPath = join(elsewhere, "model.safetensors.index.json");
    const index = JSON.parse(readFileSync(indexPath, "utf8")) as { weight_map: Record<string, string> };
    index.weight_map[name] = "model-00001-of-00002.safetensors";
    writeFileSync(indexPath, JSON.stringify(index));
    await refused(elsewhere, new RegExp(`${at}\\.experts\\.2.*is not in .*00001-of-00002.*where the index says it is`));
    delete index.weight_map[name];
    writeFileSync(indexPath, JSON.stringify(index));
    await refused(elsewhere, new RegExp(`${at}\\.experts\\.2\\.up_proj\\.weight is missing`));
    expect(await liveBuffers(device)).toBe(0);
  });

  it("quantized stacks with an expert too few, without scales, or of other settings than the config's", async () => {
    const out = join(temporary(), "out");
    await quantizeCheckpoint(device, moe, out, { groupSize: 32 });
    const module = "language_model.model.layers.1.mlp.switch_mlp.down_proj";
    const fewer = (tensors: Tensors) => {
      for (const name of ["weight", "scales", "biases"]) {
        const { dtype, shape, data } = take(tensors, `${module}.${name}`);
        const [count = 1, ...rest] = shape;
        const part = (data as Words).slice(0, ((data as Words).length / count) * (count - 1));
        tensors.set(`${module}.${name}`, { dtype, shape: [count - 1, ...rest], data: part });
      }
    };
    await refused(changed(out, fewer), /down_proj.weight must hold a quantized \[4, 64, 32\] stack, got \[3, 64, 32\]/);
    const without = changed(out, (tensors) => tensors.delete(`${module}.biases`));
    await refused(without, /down_proj.* has no `biases`/, "QuantConfig");
    const other = changed(out, (_, config) => Object.assign(config, { quantization: { bits: 8, group_size: 32 } }));
    await refused(other, /contradict 8 bits in groups of 32/, "QuantConfig");
    using model = await loadModel(device, out, { activationDtype: "f32" });
    expect((await lastLogits(model, ids)).every(Number.isFinite)).toBe(true);
  });

  it("configs with fields replaced by junk, with a typed error", async () => {
    const folder = changed(moe, () => {});
    const { text_config, ...outer } = configOf(moe) as { text_config: Record<string, unknown> };
    const text: Record<string, unknown> = { ...text_config, norm_topk_prob: true };
    // Without this list the number of layers decides.
    delete text.layer_types;
    const junk = fc.oneof(
      fc.constantFrom(null, 0, 1, 3, 5, -1, 1.5, 65536, 2 ** 31, 1e300, true, "4"),
      fc.string(),
      fc.array(fc.integer(), { maxLength: 5 }),
      fc.dictionary(fc.string(), fc.integer(), { maxKeys: 3 }),
    );
    const types = fc.constantFrom("qwen3_5_moe", "qwen3_5_moe_text", "qwen3_next", "qwen3_5");
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...Object.keys(text)), junk, types, async (field, value, model_type) => {
        const own = { ...text, [field]: value };
        const config = model_type === "qwen3_next" ? own : { ...outer, text_config: own };
        writeFileSync(join(folder, "config.json"), JSON.stringify({ ...config, model_type }));
        try {
          (await loadModel(device, folder)).dispose();
        } catch (error) {
          const { code } = error as { code?: string };
          if (code !== "InvalidArgument" && code !== "Safetensors") throw error;
        }
      }),
      { numRuns: 200, seed: 1, interruptAfterTimeLimit: 20_000 },
    );
    expect(await liveBuffers(device)).toBe(0);
  });

  it("a stack that is truncated or has an expert too many", async () => {
    const name = "model.language_model.layers.1.mlp.experts.down_proj";
    const folder = changed(moe, (tensors) => tensors.set(name, rows(take(tensors, name), 0, 3)));
    await refused(
      folder,
      new RegExp(`${at}\\.experts\\.down_proj must have shape \\[4, 64, 32\\], got \\[3, 64, 32\\]`),
    );
  });
});

it("tensors of layers for further tokens are not asked for", async () => {
  const folder = temporary();
  cpSync(moe, folder, { recursive: true });
  using model = await loadModel(device, folder);
  expect([...model.tensorNames].filter((name) => name.includes("mtp"))).toEqual([]);
  expect(model.sizes).toEqual({ experts: { count: 4, perToken: 2, layers: 2, shared: true } });
});
