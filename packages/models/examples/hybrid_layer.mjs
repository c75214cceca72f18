// A layer of your own, composed of ops: a gated delta rule with a gate for each channel, as in Kimi Linear, then attention.
// Projections are 4-bit. A prompt in one call and token by token must give the same result.
//   node packages/models/examples/hybrid_layer.mjs
import { Device } from "@mlxts/core";
import { causalConv1d, deltaGates, gatedDeltaRule } from "@mlxts/delta-rule";
import { add, kvCacheAppend, sdpa, slice } from "@mlxts/nn";
import { gatedRmsNorm, rmsNorm } from "@mlxts/norms";
import { quantize, quantizedMatmul } from "@mlxts/quant4";

/** Tokens, hidden size, and the kernel size of the convolution. */
const [T, D, W] = [75, 128, 4];
/** Key heads, value heads and their dimensions; heads of attention and their dimension. */
const [Hk, H, K, V, HEADS, DIM] = [2, 4, 32, 32, 2, 64];

/** The layer over x [1, tokens, D]; `state` holds what later tokens need of these, and is updated. */
function hybridLayer(encoder, x, w, state) {
  const tokens = x.shape[1];
  const project = (q, from) => quantizedMatmul(encoder, { x: from, q });
  const heads = (from, begin, count, dim) =>
    slice(encoder, { x: from }, { begin, size: count * dim }).reshape([1, tokens, count, dim]);

  const hidden = rmsNorm(encoder, { x, weight: w.norm1 });
  const { y: mixed } = causalConv1d(
    encoder,
    { x: project(w.qkv, hidden), weight: w.conv, initialState: state.conv, finalState: state.conv },
    { activation: "silu" },
  );
  const { g, beta } = deltaGates(
    encoder,
    { a: project(w.a, hidden).reshape([1, tokens, H, K]), b: project(w.b, hidden), aLog: w.aLog, dtBias: w.dtBias },
    { lowerBound: -5, betaScale: 2 },
  );
  const [q, k] = [heads(mixed, 0, Hk, K), heads(mixed, Hk * K, Hk, K)];
  const v = heads(mixed, 2 * Hk * K, H, V);
  const { o } = gatedDeltaRule(
    encoder,
    { q, k, v, g, beta, initialState: state.rule, finalState: state.rule },
    { scale: K ** -0.5, qkNorm: "sum-eps" },
  );
  const z = project(w.z, hidden).reshape([1, tokens, H, V]);
  const gated = gatedRmsNorm(encoder, { x: o, z, weight: w.gatedNorm }, { activation: "sigmoid" });
  const between = add(encoder, { a: x, b: project(w.out1, gated.reshape([1, tokens, H * V])) });

  const all = project(w.attention, rmsNorm(encoder, { x: between, weight: w.norm2 }));
  const [query, key, value] = [0, 1, 2].map((part) => heads(all, part * HEADS * DIM, HEADS, DIM));
  const { kCache, vCache, start, lengths } = state;
  kvCacheAppend(encoder, { k: key, v: value, kCache, vCache, start });
  const seen = sdpa(encoder, { q: query, kCache, vCache, lengths }, { scale: DIM ** -0.5 });
  return add(encoder, { a: between, b: project(w.out2, seen.reshape([1, tokens, HEADS * DIM])) });
}

const device = Device.open();
let seed = 1;
/** Pseudorandom numbers from −size to size, always the same. */
const noise = (shape, size) => {
  const next = () => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return size * (seed / 2 ** 31 - 1);
  };
  return device.tensor("f32", shape, Float32Array.from({ length: shape.reduce((a, b) => a * b) }, next));
};

async function randomWeights() {
  const encoder = device.encoder();
  const matrix = (rows, columns) => ({
    ...quantize(encoder, { w: noise([rows, columns], (3 / columns) ** 0.5) }),
    bits: 4,
    groupSize: 64,
    mode: "affine",
  });
  const weights = {
    qkv: matrix(2 * Hk * K + H * V, D),
    a: matrix(H * K, D),
    b: matrix(H, D),
    z: matrix(H * V, D),
    out1: matrix(D, H * V),
    attention: matrix(3 * HEADS * DIM, D),
    out2: matrix(D, HEADS * DIM),
    conv: noise([2 * Hk * K + H * V, W], 1),
    aLog: noise([H], 1),
    dtBias: noise([H, K], 2),
    norm1: noise([D], 1),
    norm2: noise([D], 1),
    gatedNorm: noise([V], 1),
  };
  await encoder.commit();
  return weights;
}

const emptyState = () => ({
  conv: device.tensor("f32", [1, W - 1, 2 * Hk * K + H * V]),
  rule: device.tensor("f32", [1, H, V, K]),
  kCache: device.tensor("f32", [1, HEADS, T, DIM]),
  vCache: device.tensor("f32", [1, HEADS, T, DIM]),
  start: device.tensor("i32", [1]),
  lengths: device.tensor("i32", [1]),
});

/** The layer over tokens `begin` to `end` of x. */
async function run(x, begin, end, weights, state) {
  state.start.write(Int32Array.of(begin));
  state.lengths.write(Int32Array.of(end));
  const encoder = device.encoder();
  const tokens = x
    .reshape([T, D])
    .slice(begin, end)
    .reshape([1, end - begin, D]);
  const out = hybridLayer(encoder, tokens, weights, state);
  await encoder.commit();
  return out.readNumbers();
}

const weights = await randomWeights();
const x = noise([1, T, D], 1);
const whole = await run(x, 0, T, weights, emptyState());
const steps = [];
const state = emptyState();
for (let t = 0; t < T; t++) steps.push(...(await run(x, t, t + 1, weights, state)));
device.dispose();

const rms = (numbers) => Math.sqrt(numbers.reduce((sum, value) => sum + value * value, 0) / numbers.length);
const ratio = rms(whole.map((value, i) => value - steps[i])) / rms(whole);
console.log(
  `${T} tokens at once and one by one: rms ${rms(whole).toPrecision(3)}, difference ${ratio.toExponential(1)}`,
);
// Two orders of f32 sums may differ by this much.
if (!(ratio <= 2e-6)) throw new Error("the layer depends on how its tokens are cut into calls");
