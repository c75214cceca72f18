import type { CommandEncoder, Tensor } from "@mlxts/core";
import { compare } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { goldens } from "@mlxts/test-kit/goldens";
import { afterAll, describe, expect, it } from "vitest";
import {
  mlaAttention,
  mlaCacheAppend,
  mlaDecode,
  mlaOut,
  mlaPrefill,
  mlaQPrime,
  type Quantized,
  ropeYarn,
  rotaryTable,
  yarnRotary,
} from "../src/index.ts";

const layer = goldens("goldens/mla_layer.safetensors");
const byMlx = goldens("goldens/mla_quantized.safetensors");
const SETTINGS = { "4bit": { bits: 4, groupSize: 64 }, "8bit": { bits: 8, groupSize: 32 } } as const;
const shapeOf = (name: string) => layer.tensor(name).shape as number[];
const [TOKENS = 0, HEADS = 0, HEAD_DIM = 0] = shapeOf("q");
const ROPE = shapeOf("k_pe")[1] as number;
const rotary = yarnRotary({
  ropeDim: ROPE,
  headDim: HEAD_DIM,
  base: 1e4,
  factor: 4,
  originalLength: 1024,
  mscale: 1,
  mscaleAllDim: 1,
});

/** Of each row all first elements of pairs, then all second ones, as transformers stores what it has rotated. */
const pairsApart = (x: ArrayLike<number>) =>
  Float64Array.from({ length: x.length }, (_, i) => {
    const at = i % ROPE;
    return x[i - at + (at < ROPE / 2 ? 2 * at : 2 * at - ROPE + 1)] as number;
  });

it("frequencies of transformers", () => {
  const theirs = layer.numbers("hf.inverse_frequencies");
  expect(compare(rotary.inverseFrequencies, theirs).ratio).toBeLessThan(1e-7);
});

describe.each(DEVICES)("a layer of a tiny DeepSeek-V3 on %s", (_, open) => {
  const device = open();
  afterAll(() => device.dispose());
  const stored = (name: string, shape = shapeOf(name)) => device.tensor("f32", shape, layer.numbers(name));
  const rotated = (name: string, heads: number, first: number) =>
    ropeYarn(
      encoder,
      { x: stored(name, [1, TOKENS, heads, first + ROPE]), positions: device.tensor("i32", [1], [0]), table },
      { first },
    );
  const table = device.tensor("f32", [TOKENS, 2, ROPE / 2], rotaryTable(rotary, TOKENS));
  const encoder = device.encoder();

  it("rotates as transformers does", async () => {
    const q = rotated("q", HEADS, HEAD_DIM - ROPE);
    const k = rotated("k_pe", 1, 0);
    await encoder.commit();
    const theirs = layer.numbers("hf.q_pe");
    // Their angles are f32.
    expect(compare(pairsApart(await q.readNumbers()).subarray(0, theirs.length), theirs).ratio).toBeLessThan(1e-6);
    expect(compare(pairsApart(await k.readNumbers()), layer.numbers("hf.k_pe")).ratio).toBeLessThan(5e-6);
  });

  const [R, V] = [shapeOf("latent")[1] as number, shapeOf("out")[2] as number];
  const NOPE = HEAD_DIM - ROPE;
  const lengths = device.tensor("i32", [1], [TOKENS]);
  const options = { nope: NOPE, softmaxScale: rotary.softmaxScale };

  /** The queries of all tokens, and the caches that their rows are in. */
  function attentionInputs(encoder: CommandEncoder) {
    const start = device.tensor("i32", [1], [0]);
    const rotate = (x: Tensor, first: number) => ropeYarn(encoder, { x, positions: start, table }, { first });
    const q = stored("q", [1, TOKENS, HEADS, HEAD_DIM]);
    const { latentCache, kPeCache } = mlaCacheAppend(encoder, {
      latent: stored("latent", [1, TOKENS, R]),
      kPe: rotate(stored("k_pe", [1, TOKENS, 1, ROPE]), 0).reshape([1, TOKENS, ROPE]),
      start,
      latentCache: device.tensor("f32", [1, TOKENS + 3, R]),
      kPeCache: device.tensor("f32", [1, TOKENS + 3, ROPE]),
    });
    return { q, qPe: rotate(q, NOPE), latentCache, kPeCache, lengths };
  }

  it("gives the recorded outputs", async () => {
    const kvB = stored("kv_b");
    const encoder = device.encoder();
    const { q, ...cached } = attentionInputs(encoder);
    const queries = mlaQPrime(encoder, { q, kvB }, { nope: NOPE });
    const { vc } = mlaAttention(encoder, { queries, ...cached }, { softmaxScale: rotary.softmaxScale });
    const outs = [mlaOut(encoder, { vc, kvB }, { v: V })];
    for (const form of ["folded", "materialized"] as const)
      outs.push(mlaPrefill(encoder, { q, ...cached, kvB }, { ...options, form }).out);
    await encoder.commit();
    // The recording was made in f32 by another order of sums and with rounded angles: in f64 it is 1.1e-6 away.
    for (const out of outs) expect(compare(await out.readNumbers(), layer.numbers("out")).ratio).toBeLessThan(2e-6);
  });

  /** A matrix as MLX has quantized it. */
  function quantized(name: string, setting: keyof typeof SETTINGS): Quantized {
    const part = (field: string) => {
      const { dtype, shape, data } = byMlx.tensor(`${setting}.${name}.${field}`);
      return device.tensor(dtype, shape, data as Float32Array);
    };
    return {
      weight: part("weight"),
      scales: part("scales"),
      biases: part("biases"),
      ...SETTINGS[setting],
      mode: "affine",
    };
  }

  it.each(
    (["4bit", "8bit"] as const).flatMap((setting) =>
      (["kv_b", "parts"] as const).map((form) => [setting, form] as const),
    ),
  )("%s weights, %s, give MLX's outputs", async (setting, form) => {
    const weights =
      form === "kv_b"
        ? { kvB: quantized("kv_b", setting) }
        : { embedQ: quantized("embed_q", setting), unembedOut: quantized("unembed_out", setting) };
    const expected = byMlx.numbers(`${setting}.${form}.out`);
    const encoder = device.encoder();
    const { q, qPe, ...cached } = attentionInputs(encoder);
    const most = expected.length / (HEADS * V);
    /** The last `count` tokens. */
    const last = (tensor: Tensor, count: number) =>
      tensor.view((TOKENS - count) * HEADS * tensor.lastDim, [1, count, HEADS, tensor.lastDim]);
    const given = (count: number) => ({ q: last(q, count), qPe: last(qPe, count), ...cached, ...weights });
    const outs = [1, 5, most].map((count) => mlaDecode(encoder, given(count), options).out);
    outs.push(mlaPrefill(encoder, given(most), { ...options, form: "materialized" }).out);
    await encoder.commit();
    for (const out of outs)
      expect(compare(await out.readNumbers(), expected.slice(expected.length - out.size)).ratio).toBeLessThan(2e-6);
  });
});
