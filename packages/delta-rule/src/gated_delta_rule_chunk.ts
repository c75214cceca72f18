import { type CommandEncoder, type Dtype, defineKernel, FLOATS, OLD_SCRATCH, oldLaunch } from "@mlxts/core";
import type { ChunkDims } from "./chunk.ts";
import type { RuleTensors } from "./gated_delta_rule_recurrent.ts";
import { deltaRuleLibrary } from "./library.ts";
import { PACKED_FAULTS, RULE_BUFFERS, RULE_IN_PLACE, RULE_PARAMS, type RuleOptions, ruleParams } from "./options.ts";

const PANEL = 64;

/** The most elements of state per head with which the whole pipeline stays in the cache of a processor core. */
const MOST_STATE = 2 ** 17;

export const gatedDeltaRuleChunkKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "gated_delta_rule_chunk",
  variants: FLOATS,
  buffers: RULE_BUFFERS,
  params: { ...RULE_PARAMS, pair: "u32" },
  faults: PACKED_FAULTS,
  inPlace: RULE_IN_PLACE,
  scratch: OLD_SCRATCH,
  launch: oldLaunch(({ N, H, K, V, BT }: Pick<ChunkDims, "N" | "H" | "K" | "V" | "BT">) => {
    const padded = Math.ceil(K / 16) * 16;
    const state = (Math.ceil(V / PANEL) + 1) * K * PANEL;
    const rows = 4 * BT * padded + K * BT + 3 * BT * BT + 2 * BT * PANEL + 4 * BT + 2 * (BT + 16);
    const pairs = (3 * BT * padded + BT * BT + 2 * BT * PANEL) / 2;
    const threadgroupBytes = 4 * (state + rows + pairs);
    return { threadgroups: [H, N, 1] as const, threadsPerThreadgroup: [256, 1, 1] as const, threadgroupBytes };
  }),
});

/** Whether the device's library has one kernel for the whole pipeline. */
export const offersFusedChunks = ({ device }: CommandEncoder, dtype: Dtype): boolean =>
  device.library(deltaRuleLibrary).has(gatedDeltaRuleChunkKernel.name, dtype);

/** Whether a call takes that kernel: with one gate a head, and a state small enough. */
export const fusesChunks = (
  encoder: CommandEncoder,
  dtype: Dtype,
  { K, V, channels }: Pick<ChunkDims, "K" | "V" | "channels">,
): boolean => channels === 1 && K * V <= MOST_STATE && offersFusedChunks(encoder, dtype);

export function encodeFusedChunks(
  encoder: CommandEncoder,
  op: string,
  tensors: RuleTensors,
  dims: ChunkDims,
  options: RuleOptions & { pair: boolean },
  keepsLast: boolean,
): void {
  const { q, k, v, g, beta, initialState, cuSeqlens, mask, o, finalState, snapshots } = tensors;
  encoder.dispatch(gatedDeltaRuleChunkKernel, {
    op,
    variant: q.dtype,
    buffers: { q, k, v, g, beta, initialState, cuSeqlens, mask, o, finalState, snapshots },
    params: { ...ruleParams(dims, options, dims.BT, keepsLast), pair: options.pair ? 1 : 0 },
    sizes: dims,
  });
}
