import type { Tensor } from "@mlxts/core";
import { compare } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { goldens } from "@mlxts/test-kit/goldens";
import { afterAll, describe, expect, it } from "vitest";
import {
  mlaAttention,
  mlaCacheAppend,
  mlaOut,
  mlaPrefill,
  mlaQPrime,
  ropeYarn,
  rotaryTable,
  yarnRotary,
} from "../src/index.ts";

const layer = goldens("goldens/mla_layer.safetensors");
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

  it("gives the recorded outputs", async () => {
    const [R, V] = [shapeOf("latent")[1] as number, shapeOf("out")[2] as number];
    const NOPE = HEAD_DIM - ROPE;
    const start = device.tensor("i32", [1], [0]);
    const lengths = device.tensor("i32", [1], [TOKENS]);
    const [q, kvB] = [stored("q", [1, TOKENS, HEADS, HEAD_DIM]), stored("kv_b")];
    const encoder = device.encoder();
    const rotate = (x: Tensor, first: number) => ropeYarn(encoder, { x, positions: start, table }, { first });
    const kPe = rotate(stored("k_pe", [1, TOKENS, 1, ROPE]), 0).reshape([1, TOKENS, ROPE]);
    const { latentCache, kPeCache } = mlaCacheAppend(encoder, {
      latent: stored("latent", [1, TOKENS, R]),
      kPe,
      start,
      latentCache: device.tensor("f32", [1, TOKENS + 3, R]),
      kPeCache: device.tensor("f32", [1, TOKENS + 3, ROPE]),
    });
    const queries = mlaQPrime(encoder, { q, kvB }, { nope: NOPE });
    const { vc } = mlaAttention(
      encoder,
      { queries, qPe: rotate(q, NOPE), latentCache, kPeCache, lengths },
      { softmaxScale: rotary.softmaxScale },
    );
    const outs = [mlaOut(encoder, { vc, kvB }, { v: V })];
    for (const form of ["folded", "materialized"] as const) {
      const given = { q, qPe: rotate(q, NOPE), kvB, latentCache, kPeCache, lengths };
      outs.push(mlaPrefill(encoder, given, { nope: NOPE, softmaxScale: rotary.softmaxScale, form }).out);
    }
    await encoder.commit();
    // The recording was made in f32 by another order of sums and with rounded angles: in f64 it is 1.1e-6 away.
    for (const out of outs) expect(compare(await out.readNumbers(), layer.numbers("out")).ratio).toBeLessThan(2e-6);
  });
});
