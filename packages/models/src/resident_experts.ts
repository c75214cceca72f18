// Experts of a checkpoint that is larger than memory: a bounded number of each layer stays in memory, the others are read
// from the mapped file when a token needs them.
import { type CommandEncoder, type Device, DTYPES, type Tensor, wrongKind, wrongValue } from "@mlxts/core";
import { moeKeep, moePages } from "@mlxts/moe";
import type { StackPart } from "./stack_parts.ts";
import type { MatrixStack } from "./weights.ts";

/** A tensor of the experts' matrices, as `moePages` takes it. */
interface Pages {
  stack: Tensor;
  starts: Tensor | undefined;
  elements: number | undefined;
}

const tensorsOf = ({ dense, quantized }: MatrixStack): Tensor[] =>
  [dense, quantized?.weight, quantized?.scales, quantized?.biases].filter((tensor) => tensor !== undefined);

const pagesOf = (stack: MatrixStack): Pages[] => [
  ...tensorsOf(stack).map((tensor) => ({ stack: tensor, starts: undefined, elements: undefined })),
  ...(stack.parts ?? []).map(({ weight, starts }) => ({ stack: weight, starts, elements: stack.rows * stack.cols })),
];

/** Bytes of one of so many matrices. */
function bytesOf(stack: MatrixStack, experts: number): number {
  const { rows, cols, parts } = stack;
  if (parts) return rows * cols * DTYPES[(parts[0] as StackPart).weight.dtype].bytesPerElement;
  return tensorsOf(stack).reduce((sum, { byteLength }) => sum + byteLength / experts, 0);
}

/** The experts of one layer. All stay in memory, as far as the system lets them, until there is a limit. */
export class ResidentExperts {
  /** How many each token goes to. */
  readonly perToken: number;
  /** Bytes of an expert. */
  readonly bytes: number;
  private readonly experts: number;
  private readonly pages: readonly Pages[];
  private limit: { keep: number; ages: Tensor } | undefined;

  constructor(stacks: readonly MatrixStack[], experts: number, perToken: number) {
    this.experts = experts;
    this.perToken = perToken;
    this.pages = stacks.flatMap(pagesOf);
    this.bytes = stacks.reduce((sum, stack) => sum + bytesOf(stack, experts), 0);
  }

  /** Whether some of them are copies in memory, which nobody can give back. */
  get copied(): boolean {
    return this.pages.some(({ stack }) => !stack.buffer.readOnly);
  }

  /** From now on at most `keep` experts stay in memory. Returns the tensor that counts their use. */
  keep(device: Device, keep: number): Tensor {
    const ages = device.tensor("u32", [this.experts]);
    this.limit = { keep: Math.min(keep, this.experts), ages };
    return ages;
  }

  /**
   * Records `products`, which read the experts `indices`. These are fetched before; the least recently used ones beyond
   * the limit are evicted while the fetched ones are read. Where a pass may choose more experts than stay, they are
   * evicted after the products, because some of the chosen ones are among them.
   */
  encode(encoder: CommandEncoder, indices: Tensor, products: () => void): void {
    if (!this.limit) {
      products();
      return;
    }
    const { keep, ages } = this.limit;
    const { chosen, evicted } = moeKeep(encoder, { indices, ages, aged: ages }, { keep });
    this.advise(encoder, chosen, "fetch");
    const few = indices.size <= keep;
    if (few) this.advise(encoder, evicted, "evict");
    products();
    if (!few) this.advise(encoder, evicted, "evict");
  }

  private advise(encoder: CommandEncoder, chosen: Tensor, advice: "fetch" | "evict"): void {
    for (const { stack, starts, elements } of this.pages)
      moePages(encoder, { stack, starts, chosen }, { advice, elements });
  }
}

/**
 * Lets the experts of all layers together take so many bytes of memory.
 * @throws TypeError or RangeError `InvalidArgument` for a GPU, for a model without experts, for experts that were copied into
 *   memory, and for fewer bytes than one token needs
 */
export function limitExperts(
  op: string,
  device: Device,
  layers: readonly ResidentExperts[],
  expertMemory: number,
): Tensor[] {
  if (typeof expertMemory !== "number") throw wrongKind(op, "expertMemory", "be a number of bytes", expertMemory);
  if (device.gpu)
    throw wrongValue(
      op,
      "expertMemory",
      "be left out on a GPU, whose driver keeps whole weights in memory",
      expertMemory,
    );
  if (layers.length === 0)
    throw wrongValue(op, "expertMemory", "be left out for a model without experts", expertMemory);
  if (layers.some(({ copied }) => copied))
    throw wrongValue(
      op,
      "expertMemory",
      "be left out where experts had to be copied into memory, since their file does not align them",
      expertMemory,
      "safetensors of Hugging Face and `mlxts quantize` write files that do",
    );
  const ofEach = layers.reduce((sum, { bytes }) => sum + bytes, 0);
  const least = layers.reduce((sum, { bytes, perToken }) => sum + bytes * perToken, 0);
  if (!(expertMemory >= least))
    throw wrongValue(op, "expertMemory", `be at least ${least}, what one token needs`, expertMemory);
  const keep = Math.floor(expertMemory / ofEach);
  return layers.map((layer) => layer.keep(device, keep));
}
