import { type Checkpoint, type CommandEncoder, type Dtype, MlxtsError, type Tensor } from "@mlxts/core";
import { embedding, matmul } from "@mlxts/nn";
import { type Quantization, type Quantized, quantizedEmbedding, quantizedMatmul, readQuantized } from "@mlxts/quant4";

/** A weight matrix [rows, cols] as its checkpoint has it, dense or quantized. */
export interface Matrix {
  rows: number;
  cols: number;
  dense?: Tensor;
  quantized?: Quantized;
  bias?: Tensor;
}

/** The tensors of a checkpoint whose names begin with `prefix`, checked against the shapes that a config asks for. */
export class Weights {
  readonly checkpoint: Checkpoint;
  private readonly quantization: Quantization | undefined;
  private readonly signal: AbortSignal | undefined;
  private readonly prefix: string;
  /** Tensors beside the checkpoint's own. */
  private readonly owned: Tensor[];
  /** Names of the checkpoint's tensors that were asked for; of a quantized one that of its `weight`. */
  readonly used: Set<string>;

  constructor(
    checkpoint: Checkpoint,
    quantization: Quantization | undefined,
    signal?: AbortSignal,
    prefix = "",
    owned: Tensor[] = [],
    used: Set<string> = new Set(),
  ) {
    this.checkpoint = checkpoint;
    this.quantization = quantization;
    this.signal = signal;
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
    return new Weights(this.checkpoint, this.quantization, this.signal, prefix, this.owned, this.used);
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

  /** A tensor where it lies in the file. Its shape must be that one, not counting dimensions of 1. */
  tensor(name: string, shape: readonly number[]): Tensor {
    this.signal?.throwIfAborted();
    const found = this.shape(name);
    const squeezed = (dims: readonly number[]) => dims.filter((dim) => dim !== 1).join();
    if (squeezed(found) !== squeezed(shape))
      this.refuse(name, `must have shape [${shape.join(", ")}], got [${found.join(", ")}]`);
    this.used.add(this.prefix + name);
    return this.checkpoint.tensor(this.prefix + name).reshape(shape);
  }

  /** A copy of a small weight as f32, which loses nothing: for norms, gates and convolutions. */
  async f32(name: string, shape: readonly number[]): Promise<Tensor<"f32">> {
    const stored = this.tensor(name, shape);
    return this.own(stored.device.tensor("f32", shape, await stored.readNumbers()));
  }

  /** The matrix of module `path`: its `weight`, quantized where the checkpoint says so, and its `bias` if it has one. */
  async matrix(path: string, rows: number, cols: number): Promise<Matrix> {
    this.signal?.throwIfAborted();
    const quantized =
      this.quantization && readQuantized(this.checkpoint, this.quantization, this.prefix + path, { cols });
    const bias = this.has(`${path}.bias`) ? await this.f32(`${path}.bias`, [rows]) : undefined;
    if (!quantized) return { rows, cols, dense: this.tensor(`${path}.weight`, [rows, cols]), ...(bias && { bias }) };
    this.used.add(`${this.prefix}${path}.weight`);
    const [foundRows = 0, words = 0] = quantized.weight.shape.slice(-2);
    const foundCols = (words * 32) / quantized.bits;
    if (quantized.weight.shape.length !== 2 || foundRows !== rows || foundCols !== cols)
      this.refuse(
        `${path}.weight`,
        `must hold a quantized [${rows}, ${cols}] matrix, got [${foundRows}, ${foundCols}]`,
      );
    return { rows, cols, quantized, ...(bias && { bias }) };
  }
}

/** `x · Wᵀ (+ bias)`, dense or quantized. */
export function linear(
  encoder: CommandEncoder,
  x: Tensor,
  { dense, quantized, bias }: Matrix,
  outDtype: Dtype = x.dtype,
  out?: Tensor,
): Tensor {
  const options = { outDtype: outDtype as "f32" | "f16" | "bf16" };
  if (quantized) return quantizedMatmul(encoder, { x, q: quantized, bias, out }, options);
  return matmul(encoder, { x, weight: dense as Tensor, bias, out }, options);
}

/** The rows `ids` of an embedding matrix. */
export function embed(encoder: CommandEncoder, ids: Tensor, { dense, quantized }: Matrix, outDtype: Dtype): Tensor {
  const options = { outDtype: outDtype as "f32" | "f16" | "bf16" };
  return quantized
    ? quantizedEmbedding(encoder, { ids, q: quantized }, options)
    : embedding(encoder, { ids, weight: dense as Tensor }, options);
}
