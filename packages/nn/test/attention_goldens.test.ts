import { BARS, compare } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { goldens } from "@mlxts/test-kit/goldens";
import { afterAll, describe, expect, it } from "vitest";
import { kvCacheAppend, matmul, sdpa } from "../src/index.ts";

// The small attention layer of Hugging Face's qwen3_5: hidden 48, 4 heads and 2 key/value heads of 32, of which 8 rotate.
const [TOKENS, HIDDEN, HEADS, KV_HEADS, DIM, ROTATED] = [11, 48, 4, 2, 32, 8];
const hf = goldens("goldens/hf_ops.safetensors");
const golden = (name: string) => hf.numbers(`attention_layer.${name}`);

/** Norm of each head with 1 + weight, then rotation of the first dimensions, halves against each other. */
function normAndRotate(x: Float64Array, heads: number, weight: Float64Array): Float64Array {
  const out = new Float64Array(x.length);
  for (let row = 0; row * DIM < x.length; row++) {
    const head = x.subarray(row * DIM, (row + 1) * DIM);
    const inverse = 1 / Math.sqrt(head.reduce((a, v) => a + v * v, 0) / DIM + 1e-6);
    const normed = head.map((v, d) => v * inverse * (1 + (weight[d] as number)));
    out.set(normed, row * DIM);
    for (let i = 0; i < ROTATED / 2; i++) {
      const angle = Math.floor(row / heads) * 10000 ** ((-2 * i) / ROTATED);
      const [a, b] = [normed[i] as number, normed[i + ROTATED / 2] as number];
      out[row * DIM + i] = a * Math.cos(angle) - b * Math.sin(angle);
      out[row * DIM + i + ROTATED / 2] = b * Math.cos(angle) + a * Math.sin(angle);
    }
  }
  return out;
}

describe.each(DEVICES)("the attention layer of Hugging Face, on %s", (_, open) => {
  const device = open();
  afterAll(() => device.dispose());
  const f32 = (shape: number[], data?: ArrayLike<number>) => device.tensor("f32", shape, data);

  async function project(x: ArrayLike<number>, name: string, rows: number, cols: number): Promise<Float64Array> {
    const encoder = device.encoder();
    const out = matmul(encoder, {
      x: f32([1, x.length / cols, cols], x),
      weight: f32([rows, cols], golden(`weight.${name}.weight`)),
    });
    await encoder.commit();
    return out.readNumbers();
  }

  /** Attention of q over a cache filled by appends of `step` tokens. */
  async function attend(q: Float64Array, k: Float64Array, v: Float64Array, step: number): Promise<Float64Array> {
    const capacity = 16;
    const nan = new Float32Array(KV_HEADS * capacity * DIM).fill(Number.NaN);
    const kCache = f32([1, KV_HEADS, capacity, DIM], nan);
    const vCache = f32([1, KV_HEADS, capacity, DIM], nan);
    const out = new Float64Array(q.length);
    for (let t = 0; t < TOKENS; t += step) {
      const part = (x: Float64Array, heads: number) =>
        f32([1, step, heads, DIM], x.slice(t * heads * DIM, (t + step) * heads * DIM));
      const encoder = device.encoder();
      kvCacheAppend(encoder, {
        k: part(k, KV_HEADS),
        v: part(v, KV_HEADS),
        kCache,
        vCache,
        start: device.tensor("i32", [1], [t]),
      });
      const lengths = device.tensor("i32", [1], [t + step]);
      const result = sdpa(encoder, { q: part(q, HEADS), kCache, vCache, lengths }, { scale: DIM ** -0.5 });
      await encoder.commit();
      out.set(await result.readNumbers(), t * HEADS * DIM);
    }
    return out;
  }

  async function queriesKeysValues() {
    const x = golden("x");
    const both = await project(x, "q_proj", 2 * HEADS * DIM, HIDDEN);
    // Each head's queries, then its gate.
    const half = (second: boolean) =>
      Float64Array.from(
        { length: TOKENS * HEADS * DIM },
        (_, i) => both[Math.floor(i / DIM) * 2 * DIM + (second ? DIM : 0) + (i % DIM)] as number,
      );
    return {
      q: normAndRotate(half(false), HEADS, golden("weight.q_norm.weight")),
      gate: half(true),
      k: normAndRotate(await project(x, "k_proj", KV_HEADS * DIM, HIDDEN), KV_HEADS, golden("weight.k_norm.weight")),
      v: await project(x, "v_proj", KV_HEADS * DIM, HIDDEN),
    };
  }

  it.each([TOKENS, 1])("gives its output, %i tokens at a time", async (step) => {
    const { q, gate, k, v } = await queriesKeysValues();
    const attended = await attend(q, k, v, step);
    const gated = attended.map((value, i) => value / (1 + Math.exp(-(gate[i] as number))));
    const { ratio } = compare(await project(gated, "o_proj", HIDDEN, HEADS * DIM), golden("y"));
    expect(ratio).toBeLessThan(BARS.A.f32);
  });

  it("gives its probabilities", async () => {
    const { q, k } = await queriesKeysValues();
    // Values that are rows of the identity show the weights.
    const identity = new Float64Array(TOKENS * KV_HEADS * DIM);
    for (let i = 0; i < TOKENS * KV_HEADS; i++) identity[i * DIM + Math.floor(i / KV_HEADS)] = 1;
    const out = await attend(q, k, identity, TOKENS);
    const expected = golden("probabilities_bhts");
    const found = expected.map((_, i) => {
      const [h, t, s] = [Math.floor(i / TOKENS / TOKENS), Math.floor(i / TOKENS) % TOKENS, i % TOKENS];
      return out[(t * HEADS + h) * DIM + s] as number;
    });
    expect(compare(found, expected).ratio).toBeLessThan(BARS.A.f32);
  });
});
