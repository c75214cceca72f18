import { type Checkpoint, type CommandEncoder, type Dtype, isFloat, MlxtsError, type Tensor } from "@mlxts/core";
import { embedding, gatherMatmul, matmul } from "@mlxts/nn";
import {
  gatherQuantizedMatmul,
  PRODUCT_BITS,
  type Quantization,
  type Quantized,
  quantizedEmbedding,
  quantizedMatmul,
  readQuantized,
} from "@mlxts/quant4";
import type { Approximation } from "./approximation.ts";
import { type StackPart, stackParts } from "./stack_parts.ts";

/** A weight matrix [rows, cols] as its checkpoint has it, dense or quantized. */
export interface Matrix {
  rows: number;
  cols: number;
  dense?: Tensor;
  quantized?: Quantized;
  /** How products with it may differ, where it is quantized. */
  approximate?: Approximation | undefined;
  bias?: Tensor;
}

/** Matrices [rows, cols] of one size, one for each expert, as their checkpoint has them, dense or quantized. */
export interface MatrixStack {
  rows: number;
  cols: number;
  /** [experts, rows, cols] */
  dense?: Tensor;
  /** Dense matrices that do not lie one after the other: each is in one of the parts. */
  parts?: readonly StackPart[];
  quantized?: Quantized;
  /** As of a `Matrix`. */
  approximate?: Approximation | undefined;
}

/** What goes for all tensors of a checkpoint. */
interface Settings {
  approximate?: Approximation | undefined;
  signal?: AbortSignal | undefined;
}

/** The tensors of a checkpoint whose names begin with `prefix`, checked against the shapes that a config asks for. */
export class Weights {
  readonly checkpoint: Checkpoint;
  private readonly quantization: Quantization | undefined;
  private readonly settings: Settings;
  private readonly prefix: string;
  /** Tensors beside the checkpoint's own. */
  private readonly owned: Tensor[];
  /** Names of the checkpoint's tensors that were asked for; of a quantized one that of its `weight`. */
  readonly used: Set<string>;

  constructor(
    checkpoint: Checkpoint,
    quantization: Quantization | undefined,
    settings: Settings = {},
    prefix = "",
    owned: Tensor[] = [],
    used: Set<string> = new Set(),
  ) {
    this.checkpoint = checkpoint;
    this.quantization = quantization;
    this.settings = settings;
    this.prefix = prefix;
    this.owned = owned;
    this.used = used;
  }

  /** The tensors under `path`. */
  at(path: string): Weights {
    return this.under(`${this.prefix}${path}.`);
  }

  /** The tensors under another prefix of the whole checkpoint. */
  under(prefix: string): Weights {
    return new Weights(this.checkpoint, this.quantization, this.settings, prefix, this.owned, this.used);
  }

  /** `tensor`, which is then disposed with the weights. */
  own<T extends Tensor>(tensor: T): T {
    this.owned.push(tensor);
    return tensor;
  }

  /** Disposes the checkpoint and everything made from it. */
  dispose(): void {
    for (const tensor of this.owned) tensor.dispose();
    this.checkpoint.dispose();
  }

  has(name: string): boolean {
    return this.checkpoint.has(this.prefix + name);
  }

  private refuse(name: string, reason: string): never {
    const tensor = this.prefix + name;
    throw new MlxtsError("Safetensors", `${this.checkpoint.path}: tensor ${tensor} ${reason}`, {
      path: this.checkpoint.path,
      tensor,
      reason,
    });
  }

  shape(name: string): readonly number[] {
    if (!this.has(name)) this.refuse(name, "is missing");
    return this.checkpoint.info(this.prefix + name).shape;
  }

  dtype(name: string): Dtype | undefined {
    return this.has(name) ? this.checkpoint.info(this.prefix + name).dtype : undefined;
  }

  /** A tensor of floats where it lies in the file. Its shape must be that one, not counting dimensions of 1. */
  tensor(name: string, shape: readonly number[]): Tensor {
    this.settings.signal?.throwIfAborted();
    const found = this.shape(name);
    const squeezed = (dims: readonly number[]) => dims.filter((dim) => dim !== 1).join();
    if (squeezed(found) !== squeezed(shape))
      this.refuse(name, `must have shape [${shape.join(", ")}], got [${found.join(", ")}]`);
    const { dtype, storedDtype } = this.checkpoint.info(this.prefix + name);
    if (dtype === undefined || !isFloat(dtype))
      this.refuse(name, `has dtype ${storedDtype}; weights must be F32, F16 or BF16`);
    this.used.add(this.prefix + name);
    return this.checkpoint.tensor(this.prefix + name).reshape(shape);
  }

  /** A copy of a small weight as f32, which loses nothing: for norms, gates and convolutions. */
  async f32(name: string, shape: readonly number[]): Promise<Tensor<"f32">> {
    const stored = this.tensor(name, shape);
    return this.own(stored.device.tensor("f32", shape, await stored.readNumbers()));
  }

  /** The matrix of module `path`, or the matrices that one tensor has in a stack, where they are quantized. */
  private quantized(path: string, shape: readonly number[], anyByte = false): Quantized | undefined {
    this.settings.signal?.throwIfAborted();
    if (!this.quantization) return undefined;
    const cols = shape.at(-1) as number;
    const options = { cols, anyByte, offered: PRODUCT_BITS };
    const quantized = readQuantized(this.checkpoint, this.quantization, this.prefix + path, options);
    if (!quantized) return undefined;
    this.used.add(`${this.prefix}${path}.weight`);
    const packed = quantized.weight.shape;
    const found = [...packed.slice(0, -1), (packed.at(-1) as number) * (32 / quantized.bits)];
    if (found.join() !== shape.join())
      this.refuse(
        `${path}.weight`,
        `must hold a quantized [${shape.join(", ")}] ${shape.length > 2 ? "stack" : "matrix"}, got [${found.join(", ")}]`,
      );
    return quantized;
  }

  /** The matrix of module `path`: its `weight`, quantized where the checkpoint says so, and its `bias` if it has one. */
  async matrix(path: string, rows: number, cols: number): Promise<Matrix> {
    const bias = this.has(`${path}.bias`) ? await this.f32(`${path}.bias`, [rows]) : undefined;
    return { ...this.matrixAlone(path, rows, cols), ...(bias && { bias }) };
  }

  /** The same where a bias has no place: one that the checkpoint has stays unused. */
  matrixAlone(path: string, rows: number, cols: number): Matrix {
    const quantized = this.quantized(path, [rows, cols]);
    const { approximate } = this.settings;
    const elements = quantized ? { quantized, approximate } : { dense: this.tensor(`${path}.weight`, [rows, cols]) };
    return { rows, cols, ...elements };
  }

  /**
   * The stack of matrices that module `path` has as one tensor `weight`, as mlx-lm writes it. One for `gatherLinear` may lie
   * at any byte of its file: quantized, it is not copied on a CPU where the file does not align it.
   */
  stack(path: string, experts: number, rows: number, cols: number, { anyByte = false } = {}): MatrixStack {
    const shape = [experts, rows, cols];
    const quantized = this.quantized(path, shape, anyByte);
    const { approximate } = this.settings;
    return {
      rows,
      cols,
      ...(quantized ? { quantized, approximate } : { dense: this.tensor(`${path}.weight`, shape) }),
    };
  }

  /**
   * A stack of matrices that are views of larger tensors, or tensors of their own, used where they lie. Those that were
   * copied, because their file does not align them, are brought together. `nameOf` an expert names its tensor.
   */
  async scatteredStack(matrices: readonly Tensor[], nameOf: (expert: number) => string): Promise<MatrixStack> {
    const [{ dtype, shape, device }] = matrices as [Tensor];
    const [rows, cols] = shape as [number, number];
    const other = matrices.findIndex((matrix) => matrix.dtype !== dtype);
    if (other > 0) this.refuse(nameOf(other), `has dtype ${matrices[other]?.dtype}, that of expert 0 is ${dtype}`);
    const placed = [...matrices];
    const copied = [...matrices.keys()].filter((e) => !matrices[e]?.buffer.readOnly);
    if (copied.length > 0) {
      const together = this.own(device.tensor(dtype, [copied.length, rows, cols]));
      for (const [i, e] of copied.entries()) {
        this.settings.signal?.throwIfAborted();
        const own = together.slice(i, i + 1).reshape([rows, cols]);
        own.write(await (matrices[e] as Tensor).read());
        placed[e] = own;
      }
    }
    const parts = stackParts(placed);
    for (const { starts } of parts) this.own(starts);
    return { rows, cols, parts };
  }
}

/** `x · Wᵀ (+ bias)`, dense or quantized. */
export function linear(
  encoder: CommandEncoder,
  x: Tensor,
  { dense, quantized, approximate, bias }: Matrix,
  outDtype: Dtype = x.dtype,
  out?: Tensor,
): Tensor {
  const options = { outDtype: outDtype as "f32" | "f16" | "bf16" };
  if (quantized) return quantizedMatmul(encoder, { x, q: quantized, bias, out }, { ...options, approximate });
  return matmul(encoder, { x, weight: dense as Tensor, bias, out }, options);
}

/** Which matrix of a stack each row of x meets; see `gatherMatmul`. */
export interface Chosen {
  /** [tokens, k] */
  rhsIndices: Tensor;
  /** Both from `moeOrder`, or neither. */
  order?: Tensor | undefined;
  offsets?: Tensor | undefined;
}

/** `x · W[e]ᵀ` for each chosen expert e: x [T, 1 or k, 1, cols] → [T, k, 1, rows]. */
export function gatherLinear(
  encoder: CommandEncoder,
  x: Tensor,
  { rows, dense, parts, quantized, approximate }: MatrixStack,
  chosen: Chosen,
): Tensor {
  if (quantized) return gatherQuantizedMatmul(encoder, { x, q: quantized, ...chosen }, { approximate });
  if (dense) return gatherMatmul(encoder, { x, weight: dense, ...chosen });
  let out: Tensor | undefined;
  for (const part of parts as readonly StackPart[])
    out = gatherMatmul(encoder, { x, ...part, ...chosen, out }, { rows });
  return out as Tensor;
}

/** The rows `ids` of an embedding matrix. */
export function embed(encoder: CommandEncoder, ids: Tensor, { dense, quantized }: Matrix, outDtype: Dtype): Tensor {
  const options = { outDtype: outDtype as "f32" | "f16" | "bf16" };
  return quantized
    ? quantizedEmbedding(encoder, { ids, q: quantized }, options)
    : embedding(encoder, { ids, weight: dense as Tensor }, options);
}
