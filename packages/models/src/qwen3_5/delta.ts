import type { CommandEncoder, Dtype, FloatDtype, Tensor } from "@mlxts/core";
import { causalConv1d, convRollback, deltaGates, gatedDeltaRollback, gatedDeltaRule } from "@mlxts/delta-rule";
import { gatedRmsNorm } from "@mlxts/norms";
import { columns, copy, copyInputSnapshots } from "../copy.ts";
import type { EncodeOptions, ModelPath, Tokens } from "../pass.ts";
import type { ModelState } from "../state.ts";
import type { StateSpec } from "../state_options.ts";
import { areEqual } from "../tokens.ts";
import { linear, type Matrix, type Weights } from "../weights.ts";
import type { Qwen3_5Config } from "./config.ts";

/** A sequence that is cut at a multiple of so many tokens keeps its bits: each chunk of the delta rule divides it. */
export const CHUNK = 64;

/**
 * How the gated delta rule is computed over several tokens: token by token, chunk by chunk, or as `auto` decides by their
 * number.
 */
export const DELTA_PATHS = ["auto", "recurrent", "chunk"] as const satisfies readonly ModelPath[];
export type DeltaPath = (typeof DELTA_PATHS)[number];

/** What a layer computes from its input: queries, keys, values, output gates z, and a and b, of which decay and β are made. */
type Projections = { qkv: Matrix; z: Matrix; a: Matrix; b: Matrix } | { qkvz: Matrix; ba: Matrix };

export interface DeltaLayer {
  kind: "linear_attention";
  projections: Projections;
  out: Matrix;
  conv: Tensor;
  aLog: Tensor;
  dtBias: Tensor;
  norm: Tensor;
}

async function bindProjections(w: Weights, { hiddenSize, delta }: Qwen3_5Config): Promise<Projections> {
  const { values, valueHeads, channels, joined } = delta;
  if (joined)
    return {
      qkvz: await w.matrix("in_proj_qkvz", channels + values, hiddenSize),
      ba: await w.matrix("in_proj_ba", 2 * valueHeads, hiddenSize),
    };
  return {
    qkv: await w.matrix("in_proj_qkv", channels, hiddenSize),
    z: await w.matrix("in_proj_z", values, hiddenSize),
    a: await w.matrix("in_proj_a", valueHeads, hiddenSize),
    b: await w.matrix("in_proj_b", valueHeads, hiddenSize),
  };
}

/** In how many groups `project` gives the channels: each has its part of the queries, of the keys and of the values. */
const groupsOf = ({ delta: { joined, keyHeads } }: Qwen3_5Config): number => (joined ? keyHeads : 1);

/** The weights of the convolution [channels, kernelSize], in the order in which `project` gives the channels. */
async function bindConvolution(w: Weights, config: Qwen3_5Config): Promise<Tensor> {
  const { channels, kernelSize, keys, values } = config.delta;
  const groups = groupsOf(config);
  const shape = [channels, kernelSize];
  if (groups === 1) return w.f32("conv1d.weight", shape);
  const stored = w.tensor("conv1d.weight", shape);
  const rows = await stored.readNumbers();
  const own = (begin: number, count: number, group: number) => {
    const first = (begin + (group * count) / groups) * kernelSize;
    return rows.slice(first, first + (count / groups) * kernelSize);
  };
  const ordered = Array.from({ length: groups }, (_, group) => [
    ...own(0, keys, group),
    ...own(keys, keys, group),
    ...own(2 * keys, values, group),
  ]).flat();
  return w.own(stored.device.tensor("f32", shape, ordered));
}

export async function bindDelta(w: Weights, config: Qwen3_5Config, activationDtype: FloatDtype): Promise<DeltaLayer> {
  const { hiddenSize, delta } = config;
  return {
    kind: "linear_attention",
    projections: await bindProjections(w, config),
    out: await w.matrix("out_proj", hiddenSize, delta.values),
    conv: await bindConvolution(w, config),
    aLog: await w.f32("A_log", [delta.valueHeads]),
    dtBias: await w.f32("dt_bias", [delta.valueHeads]),
    // The original code multiplies by this weight in the dtype of activations.
    norm:
      w.dtype("norm.weight") === activationDtype
        ? w.tensor("norm.weight", [delta.valueDim])
        : await w.f32("norm.weight", [delta.valueDim]),
  };
}

/** The tensors of layer `index` in a state. */
export function deltaState(
  index: number,
  { delta }: Qwen3_5Config,
  { sequences, rollback, activationDtype }: { sequences: number; rollback: number; activationDtype: FloatDtype },
): StateSpec[] {
  const { keyHeads, valueHeads, keyDim, valueDim, kernelSize, channels } = delta;
  const state = [sequences, valueHeads, valueDim, keyDim];
  // After a rollback the convolution needs inputs that are older by the tokens rolled back.
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

/** What the rule logs for a rollback. */
const LOG = ["logState", "logKeys", "logDeltas", "logGates"] as const;

function logOf(state: ModelState, index: number): Record<(typeof LOG)[number], Tensor> {
  return Object.fromEntries(LOG.map((name) => [name, state.tensor(`${name}.${index}`)])) as never;
}

/** What one layer of a pass needs besides its weights. */
interface DeltaPass extends EncodeOptions<DeltaPath> {
  config: Qwen3_5Config;
  /** The index of the layer. */
  index: number;
  state: ModelState;
  tokens: Tokens;
}

/** The first axes of a pass's tensors: [sequences, tokens], or [1, T] with `cuSeqlens` for sequences of several lengths. */
interface Layout {
  lead: readonly [number, number];
  /** Undefined when all sequences have equally many tokens. */
  cuSeqlens: Tensor | undefined;
}

function layoutOf({ counts, ids, cuSeqlens }: Tokens): Layout {
  return areEqual(counts)
    ? { lead: [counts.length, counts[0] as number], cuSeqlens: undefined }
    : { lead: [1, ids.size], cuSeqlens };
}

/** The causal convolution with SiLU over the projected queries, keys and values. */
function convolve(encoder: CommandEncoder, { conv }: DeltaLayer, qkv: Tensor, layout: Layout, pass: DeltaPass): Tensor {
  const { state, index, tokens, log, snapshots } = pass;
  const inputs = state.tensor(`conv.${index}`);
  const { y } = causalConv1d(
    encoder,
    { x: qkv, weight: conv, initialState: inputs, cuSeqlens: layout.cuSeqlens, finalState: inputs },
    { activation: "silu" },
  );
  if (log) copy(encoder, inputs, state.tensor(`logInputs.${index}`));
  if (snapshots)
    copyInputSnapshots(encoder, qkv, tokens.counts, snapshots, snapshots.tensors[`conv.${index}`] as Tensor);
  return y;
}

/** The path of a pass. For sequences of several lengths `auto` is what the rule takes for the longest one alone. */
function pathOf({ path, tokens, config }: DeltaPass, { cuSeqlens }: Layout): DeltaPath {
  const takesChunks = Math.max(...tokens.counts) >= CHUNK && config.delta.keyDim % 8 === 0;
  return path === "auto" && cuSeqlens && takesChunks ? "chunk" : path;
}

/** Where the rule writes its snapshots, [slots, H, V, K], as many as it has for these sequences. */
function ruleSnapshots({ snapshots, index }: DeltaPass, { lead: [sequences, tokens] }: Layout): Tensor | undefined {
  return snapshots?.tensors[`delta.${index}`]?.slice(0, sequences * Math.floor(tokens / snapshots.every));
}

/** Columns of projections, what they are for all heads together, in the order in which they lie. */
function split(encoder: CommandEncoder, x: Tensor, rows: number, groups: number, sizes: readonly number[]): Tensor[] {
  const grouped = x.reshape([rows * groups, x.size / (rows * groups)]);
  let begin = 0;
  return sizes.map((size) => {
    const part = columns(encoder, grouped, begin / groups, size / groups);
    begin += size;
    return part.reshape([rows, size]);
  });
}

/** The projections of x [rows, hidden]: qkv [rows, channels], z [rows, values], a and b [rows, valueHeads]. */
function project(encoder: CommandEncoder, { projections }: DeltaLayer, x: Tensor, config: Qwen3_5Config) {
  const { channels, values, valueHeads } = config.delta;
  const groups = groupsOf(config);
  const rows = x.shape[0] as number;
  if ("qkv" in projections) {
    const { qkv, z, a, b } = projections;
    return {
      qkv: linear(encoder, x, qkv),
      a: linear(encoder, x, a),
      b: linear(encoder, x, b),
      z: linear(encoder, x, z),
    };
  }
  const [qkv, z] = split(encoder, linear(encoder, x, projections.qkvz), rows, groups, [channels, values]);
  const [b, a] = split(encoder, linear(encoder, x, projections.ba), rows, groups, [valueHeads, valueHeads]);
  return { qkv, a, b, z } as Record<"qkv" | "a" | "b" | "z", Tensor>;
}

/** The gated delta rule over the convolved queries, keys and values. */
function applyRule(
  encoder: CommandEncoder,
  { aLog, dtBias }: DeltaLayer,
  convolved: Tensor,
  { a, b }: Record<"a" | "b", Tensor>,
  layout: Layout,
  pass: DeltaPass,
): Tensor {
  const { keyHeads, valueHeads, keyDim, valueDim, keys, values } = pass.config.delta;
  const { state, index, log, snapshots } = pass;
  const { lead, cuSeqlens } = layout;
  const { g, beta } = deltaGates(encoder, { a, b, aLog, dtBias });
  const rows = lead[0] * lead[1];
  const [q, k, v] = split(encoder, convolved, rows, groupsOf(pass.config), [keys, keys, values]) as [
    Tensor,
    Tensor,
    Tensor,
  ];
  const ruleState = state.tensor(`delta.${index}`);
  const { o } = gatedDeltaRule(
    encoder,
    {
      q: q.reshape([...lead, keyHeads, keyDim]),
      k: k.reshape([...lead, keyHeads, keyDim]),
      v: v.reshape([...lead, valueHeads, valueDim]),
      g: g.reshape([...lead, valueHeads]),
      beta: beta.reshape([...lead, valueHeads]),
      initialState: ruleState,
      cuSeqlens,
      finalState: ruleState,
      snapshots: ruleSnapshots(pass, layout),
      ...(log && logOf(state, index)),
    },
    {
      scale: keyDim ** -0.5,
      qkNorm: "sum-eps",
      path: pathOf(pass, layout),
      snapshotEvery: snapshots?.every,
      lastTokens: log ? state.maxRollback : undefined,
    },
  );
  return o;
}

/** The gated delta rule over x [T, hidden], with its projections, convolution, gates and norm. */
export function encodeDelta(encoder: CommandEncoder, layer: DeltaLayer, x: Tensor, pass: DeltaPass): Tensor {
  const { config, tokens } = pass;
  const { valueHeads, valueDim, values, channels } = config.delta;
  const rows = x.shape[0] as number;
  const layout = layoutOf(tokens);
  const { qkv, z, ...gates } = project(encoder, layer, x, config);
  const convolved = convolve(encoder, layer, qkv.reshape([...layout.lead, channels]), layout, pass);
  const o = applyRule(encoder, layer, convolved, gates, layout, pass);
  const perHead = [rows * valueHeads, valueDim];
  const gated = gatedRmsNorm(
    encoder,
    { x: o.reshape(perHead), z: z.reshape(perHead), weight: layer.norm },
    { eps: config.normEps, rounding: "before-weight" },
  );
  return linear(encoder, gated.reshape([rows, values]), layer.out);
}

/** Records how layer `index` loses the last `rejected` (i32 [1]) tokens of one sequence's last pass. */
export function encodeDeltaRollback(
  encoder: CommandEncoder,
  state: ModelState,
  sequence: number,
  rejected: Tensor,
  { delta: { kernelSize } }: Qwen3_5Config,
  index: number,
): void {
  const own = (name: string) => state.tensor(`${name}.${index}`).slice(sequence, sequence + 1);
  // The state of the convolution is the last rows of its tensor; the older inputs before them stay.
  const inputs = state.fixedRows(`conv.${index}`, sequence);
  convRollback(encoder, { history: own("logInputs"), rejected, finalState: inputs }, { kernelSize });
  const log = Object.fromEntries(LOG.map((name) => [name, own(name)])) as Record<(typeof LOG)[number], Tensor>;
  gatedDeltaRollback(encoder, { ...log, rejected, finalState: own("delta") }, {});
}
