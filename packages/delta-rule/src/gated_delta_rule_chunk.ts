import { type CommandEncoder, type Dtype, defineKernel, FLOATS } from "@mlxts/core";
import { type ChunkDims, channelVariants, gateVariant } from "./chunk.ts";
import type { RuleTensors } from "./gated_delta_rule_recurrent.ts";
import { CUMULATIVE_SCRATCH, shapeIf, wholeVectors } from "./launch.ts";
import { deltaRuleLibrary } from "./library.ts";
import { PACKED_FAULTS, RULE_BUFFERS, RULE_IN_PLACE, RULE_PARAMS, type RuleOptions, ruleParams } from "./options.ts";

/** The most elements of state per head with which the whole pipeline stays in the cache of a processor core. */
const MOST_STATE = 2 ** 17;

interface Sizes extends Pick<ChunkDims, "N" | "H" | "K" | "V" | "BT" | "channels"> {
  dtype: Dtype;
  /** The device's kernels multiply by AMX. */
  tiles: boolean;
}

/** The shape of a matrix operand for AMX: whole tiles of up to three bf16 for an element. */
const planes = (rows: number, columns: number) => [3, Math.ceil(rows / 32) * 32, Math.ceil(columns / 32) * 32] as const;

export const gatedDeltaRuleChunkKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "gated_delta_rule_chunk",
  variants: channelVariants([...FLOATS, "bf16_tiles"]),
  buffers: RULE_BUFFERS,
  params: { ...RULE_PARAMS, carriesLow: "u32" },
  faults: PACKED_FAULTS,
  inPlace: RULE_IN_PLACE,
  constants: { cpu: { panelValues: 64 } },
  launchParams: { cpu: { keyStride: "u32" } },
  scratch: {
    // The state is kept transposed, in panels of its value rows; values are taken in panels, too. gated: vNew as it decays
    // to the chunk's end. Decayed rows and steps, the decays from token to token, are those of channels with gates of their own. The
    // last ones are of bf16, for processors that multiply it: operands that meet along tokens, or
    // along the state's keys, as two neighbors in one element.
    cpu: {
      state: "f32",
      queries: "f32",
      keys: "f32",
      transposedKeys: "f32",
      weightedKeys: "f32",
      w: "f32",
      a: "f32",
      inverse: "f32",
      scores: "f32",
      weightedValues: "f32",
      vNew: "f32",
      gated: "f32",
      roundedState: "f32",
      betas: "f32",
      factors: "f32",
      decays: "f32",
      decaysToEnd: "f32",
      stateDecays: "f32",
      decayedQueries: "f32",
      decayedKeys: "f32",
      steps: "f32",
      ...CUMULATIVE_SCRATCH,
      queriesBf16: "bf16",
      leftKeysBf16: "bf16",
      transposedKeysBf16: "bf16",
      keysBf16: "bf16",
      inverseBf16: "bf16",
      scoresBf16: "bf16",
      rightBf16: "bf16",
      stateBf16: "bf16",
    },
  },
  launch: {
    cpu: ({ N, H, K, V, BT, channels, dtype, tiles }: Sizes, { constants: { panelValues } }) => {
      const keyStride = wholeVectors(K);
      const bf16 = dtype === "bf16";
      const forTiles = (rows: number, columns: number) => shapeIf(tiles, ...planes(rows, columns));
      const operand = (rows: number, columns: number) =>
        tiles ? forTiles(rows, columns) : shapeIf(bf16, rows, columns);
      const rows = [BT, keyStride];
      const square = [BT, BT];
      const panel = [BT, panelValues];
      const ofTokens = [BT];
      const ofChannels = shapeIf(channels > 1, ...rows);
      return {
        threadgroups: [H, N, 1],
        params: { keyStride },
        scratch: {
          state: [Math.ceil(V / panelValues), K, panelValues],
          queries: rows,
          keys: rows,
          transposedKeys: [K, BT],
          weightedKeys: rows,
          w: rows,
          a: square,
          inverse: square,
          scores: square,
          weightedValues: panel,
          vNew: panel,
          gated: panel,
          roundedState: shapeIf(dtype !== "f32", K, panelValues),
          betas: ofTokens,
          factors: ofTokens,
          decays: ofTokens,
          decaysToEnd: ofTokens,
          stateDecays: [keyStride],
          decayedQueries: ofChannels,
          decayedKeys: ofChannels,
          steps: ofChannels,
          cumulativeGateHigh: ofTokens,
          cumulativeGateLow: ofTokens,
          queriesBf16: operand(BT, keyStride),
          leftKeysBf16: operand(BT, keyStride),
          transposedKeysBf16: operand(keyStride, BT),
          keysBf16: operand(keyStride, BT),
          inverseBf16: forTiles(BT, BT),
          scoresBf16: operand(BT, BT),
          rightBf16: operand(BT, Math.max(keyStride, panelValues)),
          stateBf16: operand(K, panelValues),
        },
      };
    },
  },
});

/** Whether the device's library has one kernel for the whole pipeline. */
export const offersFusedChunks = ({ device }: CommandEncoder, dtype: Dtype): boolean =>
  [dtype, `${dtype}_tiles`].some((variant) =>
    device.library(deltaRuleLibrary).has(gatedDeltaRuleChunkKernel.name, variant),
  );

/** Whether that kernel multiplies by AMX. */
export const multipliesByTiles = ({ device }: CommandEncoder, dtype: Dtype): boolean =>
  device.library(deltaRuleLibrary).has(gatedDeltaRuleChunkKernel.name, `${dtype}_tiles`);

/** Whether a call takes that kernel: its state is small enough. */
export const fusesChunks = (encoder: CommandEncoder, dtype: Dtype, { K, V }: Pick<ChunkDims, "K" | "V">): boolean =>
  K * V <= MOST_STATE && offersFusedChunks(encoder, dtype);

export function encodeFusedChunks(
  encoder: CommandEncoder,
  op: string,
  tensors: RuleTensors,
  dims: ChunkDims,
  options: RuleOptions & { carriesLow: boolean },
  keepsLast: boolean,
): void {
  const { q, k, v, g, beta, initialState, cuSeqlens, mask, o, finalState, snapshots } = tensors;
  const tiles = multipliesByTiles(encoder, q.dtype);
  encoder.dispatch(gatedDeltaRuleChunkKernel, {
    op,
    variant: gateVariant(tiles ? `${q.dtype}_tiles` : q.dtype, dims),
    buffers: { q, k, v, g, beta, initialState, cuSeqlens, mask, o, finalState, snapshots },
    params: { ...ruleParams(dims, options, dims.BT, keepsLast), carriesLow: options.carriesLow ? 1 : 0 },
    sizes: { ...dims, dtype: q.dtype, tiles },
  });
}
