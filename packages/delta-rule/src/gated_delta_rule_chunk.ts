import { type CommandEncoder, type Dtype, defineKernel, FLOATS } from "@mlxts/core";
import type { ChunkDims } from "./chunk.ts";
import type { RuleTensors } from "./gated_delta_rule_recurrent.ts";
import { deltaRuleLibrary } from "./library.ts";
import { RULE_BUFFERS, RULE_IN_PLACE, type RuleOptions, ruleParams } from "./options.ts";

const PANEL = 64;

/** Elements of state per head beyond which the pipeline would not stay in a core's cache. */
const MOST_STATE = 2 ** 17;

export const gatedDeltaRuleChunkKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "gated_delta_rule_chunk",
  variants: FLOATS,
  buffers: RULE_BUFFERS,
  params: {
    tokens: "u32",
    keyHeads: "u32",
    heads: "u32",
    keyDim: "u32",
    valueDim: "u32",
    chunkLength: "u32",
    pair: "u32",
    qkNorm: "u32",
    eps: "f32",
    scale: "f32",
  },
  inPlace: RULE_IN_PLACE,
  launch: ({ B, H, K, V, BT }: Pick<ChunkDims, "B" | "H" | "K" | "V" | "BT">) => {
    const padded = Math.ceil(K / 16) * 16;
    const state = (Math.ceil(V / PANEL) + 1) * K * PANEL;
    const rows = 4 * BT * padded + K * BT + 3 * BT * BT + 2 * BT * PANEL + 3 * BT + 2 * (BT + 16);
    const pairs = (3 * BT * padded + BT * BT + 2 * BT * PANEL) / 2;
    const threadgroupBytes = 4 * (state + rows + pairs);
    return { threadgroups: [H, B, 1], threadsPerThreadgroup: [256, 1, 1], threadgroupBytes };
  },
});

/** Whether the device has one kernel for the pipeline, as CPUs do, and the state of a head is small enough for it. */
export function fusesChunks(encoder: CommandEncoder, dtype: Dtype, { K, V }: Pick<ChunkDims, "K" | "V">): boolean {
  const { device } = encoder;
  return (
    !device.gpu && K * V <= MOST_STATE && device.library(deltaRuleLibrary).has(gatedDeltaRuleChunkKernel.name, dtype)
  );
}

export function encodeFusedChunks(
  encoder: CommandEncoder,
  op: string,
  tensors: RuleTensors,
  dims: ChunkDims,
  options: RuleOptions & { pair: boolean },
): void {
  encoder.dispatch(gatedDeltaRuleChunkKernel, {
    op,
    variant: tensors.q.dtype,
    buffers: { ...tensors },
    params: { ...ruleParams(dims, options), chunkLength: dims.BT, pair: options.pair ? 1 : 0 },
    sizes: dims,
  });
}
