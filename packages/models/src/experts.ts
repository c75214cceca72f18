import type { CommandEncoder, Tensor } from "@mlxts/core";
import { moeCombine, moeOrder, moeRoute } from "@mlxts/moe";
import { swiglu } from "@mlxts/nn";
import { ResidentExperts } from "./resident_experts.ts";
import { gatherLinear, linear, type Matrix, type MatrixStack, type Weights } from "./weights.ts";

/** The sizes and rules of a block of experts. */
export interface MoeSpec {
  hiddenSize: number;
  experts: number;
  /** Experts for each token. */
  topK: number;
  /** Width of an expert. */
  width: number;
  score: "softmax" | "sigmoid";
  /** Groups of experts, and how many of them a token may choose from. */
  groups: number;
  topGroups: number;
  groupScore: "top2" | "max";
  /** Divides the weights of a token by their sum. */
  normalize: boolean;
  /** Factor of the weights. */
  scale: number;
  /** Name of the tensor of the router's correction bias [experts], if it has one. */
  bias?: string | undefined;
  /** The experts that all tokens go to, as one: the name of its module, its width, and that of its gate if it has one. */
  shared?: { name: string; width: number; gate?: string | undefined } | undefined;
}

/** gate, up and down of a SwiGLU MLP. */
export interface Mlp<M = Matrix> {
  gate: M;
  up: M;
  down: M;
}

/** The weights of a block of experts, bound. */
export interface MoeBlock {
  spec: MoeSpec;
  router: Matrix;
  bias: Tensor | undefined;
  experts: Mlp<MatrixStack>;
  resident: ResidentExperts;
  shared: Mlp | undefined;
  sharedGate: Matrix | undefined;
}

/** From so many choices on, all that chose one expert are one matrix product; below, each is a product of its own. Measured. */
const ORDERED_PAIRS = 64;

/** The MLP of `gate_proj`, `up_proj` and `down_proj`. */
export async function bindMlp(w: Weights, width: number, hiddenSize: number): Promise<Mlp> {
  return {
    gate: await w.matrix("gate_proj", width, hiddenSize),
    up: await w.matrix("up_proj", width, hiddenSize),
    down: await w.matrix("down_proj", hiddenSize, width),
  };
}

/** `down(silu(gate(x)) · up(x))` of x [T, hidden]. */
export function encodeMlp(encoder: CommandEncoder, { gate, up, down }: Mlp, x: Tensor): Tensor {
  const inner = swiglu(encoder, { gate: linear(encoder, x, gate), up: linear(encoder, x, up) });
  return linear(encoder, inner, down);
}

/** The experts in the layout that the checkpoint has: mlx-lm's stacks, Hugging Face's stacks, or a tensor for each matrix. */
async function bindExperts(w: Weights, { experts, width, hiddenSize }: MoeSpec): Promise<Mlp<MatrixStack>> {
  if (w.has("switch_mlp.gate_proj.weight"))
    return {
      gate: w.stack("switch_mlp.gate_proj", experts, width, hiddenSize, { anyByte: true }),
      up: w.stack("switch_mlp.up_proj", experts, width, hiddenSize, { anyByte: true }),
      down: w.stack("switch_mlp.down_proj", experts, hiddenSize, width, { anyByte: true }),
    };
  if (w.has("experts.gate_up_proj")) {
    // The rows of an expert's gate, then those of its up.
    const both = w.tensor("experts.gate_up_proj", [experts, 2 * width, hiddenSize]);
    const size = width * hiddenSize;
    const halves = (half: 0 | 1) =>
      Array.from({ length: experts }, (_, e) => both.view((2 * e + half) * size, [width, hiddenSize]));
    return {
      gate: await w.scatteredStack(halves(0), () => "experts.gate_up_proj"),
      up: await w.scatteredStack(halves(1), () => "experts.gate_up_proj"),
      down: { rows: hiddenSize, cols: width, dense: w.tensor("experts.down_proj", [experts, hiddenSize, width]) },
    };
  }
  const scattered = (name: string, rows: number, cols: number) => {
    const nameOf = (expert: number) => `experts.${expert}.${name}.weight`;
    const own = Array.from({ length: experts }, (_, e) => w.tensor(nameOf(e), [rows, cols]));
    return w.scatteredStack(own, nameOf);
  };
  return {
    gate: await scattered("gate_proj", width, hiddenSize),
    up: await scattered("up_proj", width, hiddenSize),
    down: await scattered("down_proj", hiddenSize, width),
  };
}

/** Binds the block whose module `w` is at. */
export async function bindMoe(w: Weights, spec: MoeSpec): Promise<MoeBlock> {
  const { hiddenSize, experts, topK, bias, shared } = spec;
  const stacks = await bindExperts(w, spec);
  return {
    spec,
    router: await w.matrix("gate", experts, hiddenSize),
    bias: bias === undefined ? undefined : await w.f32(bias, [experts]),
    experts: stacks,
    resident: new ResidentExperts([stacks.gate, stacks.up, stacks.down], experts, topK),
    shared: shared && (await bindMlp(w.at(shared.name), shared.width, hiddenSize)),
    sharedGate: shared?.gate === undefined ? undefined : await w.matrix(shared.gate, 1, hiddenSize),
  };
}

/** What the chosen experts give for x [T, hidden]: [T, topK, hidden]. */
function encodeExperts(encoder: CommandEncoder, { spec, experts }: MoeBlock, x: Tensor, indices: Tensor): Tensor {
  const { hiddenSize, topK } = spec;
  const tokens = x.shape[0] as number;
  const chosen = {
    rhsIndices: indices,
    ...(indices.size >= ORDERED_PAIRS && moeOrder(encoder, { indices }, { experts: spec.experts })),
  };
  const alone = x.reshape([tokens, 1, 1, hiddenSize]);
  const gate = gatherLinear(encoder, alone, experts.gate, chosen);
  const up = gatherLinear(encoder, alone, experts.up, chosen);
  const y = gatherLinear(encoder, swiglu(encoder, { gate, up }), experts.down, chosen);
  return y.reshape([tokens, topK, hiddenSize]);
}

/** Adds to `residual` [T, hidden], in place, what the experts give for x [T, hidden]. */
export function encodeMoe(encoder: CommandEncoder, block: MoeBlock, x: Tensor, residual: Tensor): void {
  const { spec, router, bias, shared, sharedGate } = block;
  const { topK, score, groups, topGroups, groupScore, normalize, scale } = spec;
  const logits = linear(encoder, x, router, "f32");
  const { indices, weights } = moeRoute(
    encoder,
    { logits, bias },
    { score, topK, groups, topGroups, groupScore, normalize, scale },
  );
  block.resident.encode(encoder, indices, () => {
    const ofAll = shared && encodeMlp(encoder, shared, x);
    const y = encodeExperts(encoder, block, x, indices);
    moeCombine(encoder, {
      y,
      weights,
      shared: ofAll,
      sharedGate: sharedGate && linear(encoder, x, sharedGate),
      residual,
      out: residual,
    });
  });
}
