import type { CommandEncoder, Dtype, FloatDtype, Tensor } from "@mlxts/core";
import { causalConv1d, convRollback, deltaGates, gatedDeltaRollback, gatedDeltaRule } from "@mlxts/delta-rule";
import { slice } from "@mlxts/nn";
import { gatedRmsNorm } from "@mlxts/norms";
import type { EncodeOptions, Snapshots, Tokens } from "../pass.ts";
import type { ModelState } from "../state.ts";
import type { StateSpec } from "../state_options.ts";
import { areEqual } from "../tokens.ts";
import { linear, type Matrix, type Weights } from "../weights.ts";
import type { Qwen3_5Config } from "./config.ts";

/** Tokens of a chunk of the delta rule: where a sequence may be cut without a change of bits. */
export const CHUNK = 64;

/** How the gated delta rule is computed over several tokens. */
export const DELTA_PATHS = ["auto", "recurrent", "chunk"] as const;
export type DeltaPath = (typeof DELTA_PATHS)[number];

export interface DeltaLayer {
  kind: "linear_attention";
  qkv: Matrix;
  z: Matrix;
  a: Matrix;
  b: Matrix;
  out: Matrix;
  conv: Tensor;
  aLog: Tensor;
  dtBias: Tensor;
  norm: Tensor;
}

export async function bindDelta(w: Weights, config: Qwen3_5Config, activationDtype: FloatDtype): Promise<DeltaLayer> {
  const { hiddenSize, delta } = config;
  const { values, channels } = delta;
  return {
    kind: "linear_attention",
    qkv: await w.matrix("in_proj_qkv", channels, hiddenSize),
    z: await w.matrix("in_proj_z", values, hiddenSize),
    a: await w.matrix("in_proj_a", delta.valueHeads, hiddenSize),
    b: await w.matrix("in_proj_b", delta.valueHeads, hiddenSize),
    out: await w.matrix("out_proj", hiddenSize, values),
    conv: await w.f32("conv1d.weight", [channels, delta.kernelSize]),
    aLog: await w.f32("A_log", [delta.valueHeads]),
    dtBias: await w.f32("dt_bias", [delta.valueHeads]),
    // The original code multiplies by this one in the dtype of activations.
    norm:
      w.dtype("norm.weight") === activationDtype
        ? w.tensor("norm.weight", [delta.valueDim])
        : await w.f32("norm.weight", [delta.valueDim]),
  };
}

/** What layer `index` remembers. */
export function deltaState(
  index: number,
  { delta }: Qwen3_5Config,
  { sequences, rollback, activationDtype }: { sequences: number; rollback: number; activationDtype: FloatDtype },
): StateSpec[] {
  const { keyHeads, valueHeads, keyDim, valueDim, kernelSize, channels } = delta;
  const state = [sequences, valueHeads, valueDim, keyDim];
  // What `rollback` takes back needs inputs further back.
  const inputs = [sequences, kernelSize - 1 + rollback, channels];
  const specs: StateSpec[] = [
    { name: `conv.${index}`, dtype: activationDtype, shape: inputs, kind: "fixed", tail: kernelSize - 1 },
    { name: `delta.${index}`, dtype: "f32", shape: state, kind: "fixed" },
  ];
  if (rollback === 0) return specs;
  const log = (name: string, dtype: Dtype, shape: number[]) =>
    specs.push({ name: `${name}.${index}`, dtype, shape, kind: "log" });
  log("logInputs", activationDtype, inputs);
  log("logState", "f32", state);
  log("logKeys", "f32", [sequences, rollback, keyHeads, keyDim]);
  log("logDeltas", "f32", [sequences, rollback, valueHeads, valueDim]);
  log("logGates", "f32", [sequences, rollback, valueHeads]);
  return specs;
}

const LOG = ["logState", "logKeys", "logDeltas", "logGates"] as const;

function logOf(state: ModelState, index: number): Record<(typeof LOG)[number], Tensor> {
  return Object.fromEntries(LOG.map((name) => [name, state.tensor(`${name}.${index}`)])) as never;
}

function copy(encoder: CommandEncoder, from: Tensor, to: Tensor): void {
  const flat = [1, from.size];
  slice(encoder, { x: from.reshape(flat), out: to.reshape(flat) }, { begin: 0, size: from.size });
}

/** The rows before each boundary: what the convolution remembers there. */
function encodeConvSnapshots(
  encoder: CommandEncoder,
  x: Tensor,
  counts: readonly number[],
  { every }: Snapshots,
  out: Tensor,
): void {
  const rows = out.shape[1] as number;
  let slot = 0;
  let row = 0;
  for (const count of counts) {
    for (let at = every; at <= count; at += every)
      copy(encoder, x.view((row + at - rows) * x.lastDim, [rows, x.lastDim]), out.slice(slot, ++slot));
    row += count;
  }
}

/** Columns `begin` … of the rows of x [.., D]; a view when there is one row. */
function columns(encoder: CommandEncoder, x: Tensor, begin: number, size: number): Tensor {
  return x.size === x.lastDim ? x.view(begin, [...x.shape.slice(0, -1), size]) : slice(encoder, { x }, { begin, size });
}

/** The gated delta rule over x [T, hidden], with its convolution, gates and norm. */
export function encodeDelta(
  encoder: CommandEncoder,
  layer: DeltaLayer,
  x: Tensor,
  state: ModelState,
  tokens: Tokens,
  { config, index, path, log, snapshots }: EncodeOptions<DeltaPath> & { config: Qwen3_5Config; index: number },
): Tensor {
  const { keyHeads, valueHeads, keyDim, valueDim, keys, values, channels } = config.delta;
  const rows = x.shape[0] as number;
  const { counts } = tokens;
  // Sequences of one length are rows; others are packed into one.
  const equal = areEqual(counts);
  const lead = equal ? [counts.length, counts[0] as number] : [1, rows];
  const cuSeqlens = equal ? undefined : tokens.cuSeqlens;

  const qkv = linear(encoder, x, layer.qkv).reshape([...lead, channels]);
  const convState = state.tensor(`conv.${index}`);
  const { y } = causalConv1d(
    encoder,
    {
      x: qkv,
      weight: layer.conv,
      state: convState,
      cuSeqlens,
      newState: convState,
    },
    { activation: "silu" },
  );
  if (log) copy(encoder, convState, state.tensor(`logInputs.${index}`));
  if (snapshots) encodeConvSnapshots(encoder, qkv, counts, snapshots, snapshots.tensors[`conv.${index}`] as Tensor);
  const { g, beta } = deltaGates(encoder, {
    a: linear(encoder, x, layer.a),
    b: linear(encoder, x, layer.b),
    aLog: layer.aLog,
    dtBias: layer.dtBias,
  });
  const part = (begin: number, heads: number, dim: number) =>
    columns(encoder, y, begin, heads * dim).reshape([...lead, heads, dim]);
  const deltaTensor = state.tensor(`delta.${index}`);
  const kept = snapshots?.tensors[`delta.${index}`];
  const slots = snapshots && counts.length * Math.floor((counts[0] as number) / snapshots.every);
  const { o } = gatedDeltaRule(
    encoder,
    {
      q: part(0, keyHeads, keyDim),
      k: part(keys, keyHeads, keyDim),
      v: part(2 * keys, valueHeads, valueDim),
      g: g.reshape([...lead, valueHeads]),
      beta: beta.reshape([...lead, valueHeads]),
      initialState: deltaTensor,
      cuSeqlens,
      finalState: deltaTensor,
      snapshots: equal ? kept?.slice(0, slots as number) : kept,
      ...(log && logOf(state, index)),
    },
    {
      scale: keyDim ** -0.5,
      qkNorm: "sum-eps",
      // The longest of several decides as it would alone.
      path: path === "auto" && !equal && keyDim % 8 === 0 && Math.max(...counts) >= CHUNK ? "chunk" : path,
      chunkLength: CHUNK,
      snapshotEvery: snapshots?.every,
      lastTokens: log ? state.maxRollback : undefined,
    },
  );
  const z = linear(encoder, x, layer.z).reshape([rows * valueHeads, valueDim]);
  const gated = gatedRmsNorm(
    encoder,
    { x: o.reshape([rows * valueHeads, valueDim]), z, weight: layer.norm },
    { eps: config.normEps, rounding: "before-weight" },
  );
  return linear(encoder, gated.reshape([rows, values]), layer.out);
}

/** Takes the last `rejected` [1] tokens of the last pass out of one sequence, in layer `index`. */
export function encodeDeltaRollback(
  encoder: CommandEncoder,
  state: ModelState,
  sequence: number,
  rejected: Tensor,
  { delta: { kernelSize } }: Qwen3_5Config,
  index: number,
): void {
  const own = (name: string) => state.tensor(`${name}.${index}`).slice(sequence, sequence + 1);
  // The inputs have older ones before them, which stay.
  const inputs = state.fixedPart(`conv.${index}`, sequence);
  convRollback(encoder, { history: own("logInputs"), rejected, state: inputs }, { taps: kernelSize });
  const log = Object.fromEntries(LOG.map((name) => [name, own(name)])) as Record<(typeof LOG)[number], Tensor>;
  gatedDeltaRollback(encoder, { ...log, rejected, finalState: own("delta") }, {});
}
