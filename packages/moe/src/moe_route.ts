import { defineKernel, defineOp, FLOATS } from "@mlxts/core";
import { moeLibrary } from "./library.ts";
import type { MoeRoute } from "./signatures.ts";
import { rowThreads, SIMD } from "./threads.ts";

export const moeRouteKernel = defineKernel({
  library: moeLibrary,
  name: "moe_route",
  variants: FLOATS,
  // choices [N, E], groupScores [N, groups]: what experts and groups are chosen by.
  buffers: {
    logits: "read",
    bias: "read?",
    choices: "write",
    groupScores: "write",
    indices: "write",
    weights: "write",
  },
  params: {
    experts: "u32",
    topK: "u32",
    groups: "u32",
    topGroups: "u32",
    softmax: "u32",
    top2: "u32",
    normalize: "u32",
    scale: "f32",
  },
  scratch: {
    // scores: of the experts of a token.
    cpu: { scores: "f32", chosen: "u32", bestGroups: "u32" },
    // partial: sums of simdgroups. best: of two searches in turn, the best expert of each simdgroup.
    gpu: { partial: "f32", best: "u32" },
  },
  launch: {
    cpu: ({ tokens, experts, topK, topGroups }: Record<"tokens" | "experts" | "topK" | "topGroups", number>) => ({
      threadgroups: [tokens, 1, 1],
      scratch: { scores: [experts], chosen: [topK], bestGroups: [topGroups] },
    }),
    gpu: ({ tokens, experts }) => {
      const threads = rowThreads(experts);
      return {
        threadgroups: [tokens, 1, 1],
        threadsPerThreadgroup: [threads, 1, 1],
        scratch: { partial: [threads / SIMD], best: [2, threads / SIMD, 2] },
      };
    },
  },
});

/**
 * Chooses experts for each token by the router's logits: `score = softmax(logits)` or `σ(logits)`; the `topK` experts with
 * the largest `score + bias`; `weights` are their scores, without the bias.
 *
 * - `logits` [N, E] f32, f16 or bf16; `bias` [E] f32, optional: it decides which experts are chosen, nothing else.
 * - `indices` [N, topK] u32, best first; of equal ones the lower index first. `weights` [N, topK] f32.
 * - `groups` > 1: experts lie in so many groups of equal size. Only those of the `topGroups` best groups can be chosen, and
 *   a group is as good as its two best experts together (`groupScore` `top2`) or its best one (`max`). mlx-lm gives experts of the
 *   other groups a 0 instead, so that with a strongly negative bias it may choose them; this is the rule of the original
 *   model code, and of Hugging Face.
 * - `normalize`: weights are divided by their sum + 1e-20. Then they are multiplied by `scale`.
 * - A row with NaN, and a softmax over nothing but −∞ or with +∞, gives NaN for all weights and the indices 0 … topK − 1.
 *
 * All in f32, whatever the dtype of the logits; numbers below 2⁻¹²⁶ count as 0. Errors: `InvalidArgument` for shapes,
 * dtypes, options and overlap. DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024.
 */
export const moeRoute: MoeRoute = defineOp({
  name: "moeRoute",
  summary: "the topK experts of each token and their weights",
  inputs: {
    logits: { dtype: FLOATS, shape: "N E", doc: "a router's logits, a row for each token" },
    bias: { dtype: ["f32"], shape: "E", optional: true, doc: "added to the scores where experts are chosen" },
  },
  outputs: {
    indices: {
      dtype: ["u32"],
      shape: { text: "N topK", of: ({ dims, options }) => [dims.N as number, options.topK as number] },
      doc: "the chosen experts, best first",
    },
    weights: {
      dtype: ["f32"],
      shape: { text: "N topK", of: ({ dims, options }) => [dims.N as number, options.topK as number] },
      doc: "their weights",
    },
  },
  params: {
    score: { kind: "choice", values: ["softmax", "sigmoid"], doc: "over all experts, or of each (DeepSeek-V3)" },
    topK: { kind: "number", integer: true, min: 1, doc: "experts for each token" },
    groups: { kind: "number", integer: true, min: 1, default: 1, doc: "groups of experts" },
    topGroups: { kind: "number", integer: true, min: 1, default: 1, doc: "groups that a token may choose from" },
    groupScore: {
      kind: "choice",
      values: ["top2", "max"],
      default: "top2",
      doc: "what makes a group good: its two best experts (DeepSeek-V3), or its best (DeepSeek-V2)",
    },
    normalize: { kind: "boolean", default: false, doc: "divide the weights by their sum" },
    scale: { kind: "number", above: 0, default: 1, doc: "factor of the weights" },
  },
  rules({ dims, options: { topK, groups, topGroups }, fail }) {
    const experts = dims.E as number;
    if (experts > 65536) fail("logits", "have at most 65536 experts", experts);
    if (experts % groups !== 0) fail("groups", `divide the ${experts} experts`, groups);
    if (topGroups > groups) fail("topGroups", `be at most the ${groups} groups`, topGroups);
    const reachable = (experts / groups) * topGroups;
    if (topK > reachable) fail("topK", `be at most the ${reachable} experts that can be chosen`, topK);
  },
  encode({ encoder, op, inputs: { logits, bias }, outputs: { indices, weights }, options, dims }) {
    const { score, topK, groups, topGroups, groupScore, normalize, scale } = options;
    const tokens = dims.N as number;
    const experts = dims.E as number;
    encoder.dispatch(moeRouteKernel, {
      op,
      variant: logits.dtype,
      buffers: {
        logits,
        bias,
        choices: encoder.empty("f32", [tokens, experts]),
        groupScores: encoder.empty("f32", [tokens, groups]),
        indices,
        weights,
      },
      params: {
        experts,
        topK,
        groups,
        topGroups,
        softmax: score === "softmax" ? 1 : 0,
        top2: groupScore === "top2" ? 1 : 0,
        normalize: normalize ? 1 : 0,
        scale,
      },
      sizes: { tokens, experts, topK, topGroups },
    });
  },
});
