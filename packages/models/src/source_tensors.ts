import { type Checkpoint, type Dtype, isFloat, MlxtsError, type RawArray, Tensor } from "@mlxts/core";
import { fp8Fault, isFp8, readFp8 } from "./fp8.ts";

/** What a tensor that is to be written is made from. */
export interface SourceTensor {
  /** Its name in Hugging Face's checkpoint; of a stack of experts its name in mlx-lm's. */
  name: string;
  dtype: Dtype;
  shape: readonly number[];
  /** It is read in so many equal parts along its first axis, so that a large one is never in memory twice. Default 1. */
  parts?: number | undefined;
  /** The elements of a part: a tensor of the checkpoint as it lies, or a new array. */
  read(part: number): Tensor | Promise<RawArray>;
}

const EXPERT = /^(.*\.mlp)\.experts\.(\d+)\.((?:gate|up|down)_proj)\.weight$/;
const STACK = /^(.*\.mlp)\.experts\.(gate_up_proj|down_proj)$/;

function refuse(checkpoint: Checkpoint, tensor: string, reason: string): never {
  const { path } = checkpoint;
  throw new MlxtsError("Safetensors", `${path}: tensor ${tensor} ${reason}`, { path, tensor, reason });
}

/** The elements of a part on the host. */
export async function elementsOf({ read }: SourceTensor, part: number): Promise<RawArray> {
  const source = await read(part);
  return source instanceof Tensor ? await source.read() : source;
}

/** A tensor as it lies in the checkpoint, a matrix in fp8 as bf16; refuses those of other dtypes than weights have. */
export function sourceTensor(checkpoint: Checkpoint, name: string): SourceTensor {
  const { dtype, storedDtype, shape } = checkpoint.info(name);
  if (isFp8(checkpoint, name)) {
    const fault = fp8Fault(checkpoint, name);
    if (fault) refuse(checkpoint, name, fault);
    return { name, dtype: "bf16", shape, read: () => readFp8(checkpoint, name) };
  }
  if (dtype === undefined || storedDtype.startsWith("F8_") || (shape.length > 1 && !isFloat(dtype)))
    refuse(checkpoint, name, `has dtype ${storedDtype}; weights must be F32, F16 or BF16`);
  return { name, dtype, shape, read: () => checkpoint.tensor(name) };
}

/** The matrices of all experts that have one tensor each, as a stack. */
function expertStack(checkpoint: Checkpoint, module: string, projection: string, count: number): SourceTensor {
  const nameOf = (expert: number) => `${module}.experts.${expert}.${projection}.weight`;
  const experts = Array.from({ length: count }, (_, expert) => sourceTensor(checkpoint, nameOf(expert)));
  const [first] = experts as [SourceTensor];
  for (const [expert, { dtype, shape }] of experts.entries())
    if (dtype !== first.dtype || shape.join() !== first.shape.join())
      refuse(checkpoint, nameOf(expert), `must be ${first.dtype} [${first.shape.join(", ")}] as that of expert 0`);
  return {
    name: `${module}.switch_mlp.${projection}.weight`,
    dtype: first.dtype,
    shape: [count, ...first.shape],
    parts: count,
    read: (expert) => (experts[expert] as SourceTensor).read(0),
  };
}

/** Stacks that lie as such in the checkpoint. In `gate_up_proj` each expert has the rows of its gate, then those of its up. */
function splitStack(checkpoint: Checkpoint, source: string, module: string, projection: string): SourceTensor[] {
  const { name, dtype, shape } = sourceTensor(checkpoint, source);
  const [experts = 0, rows = 0, cols = 0] = shape;
  const both = projection === "gate_up_proj";
  if (shape.length !== 3 || (both && rows % 2 !== 0))
    refuse(checkpoint, name, `must be a stack of ${both ? "gates and ups" : "matrices"}, got [${shape.join(", ")}]`);
  const stack = (of: string, begin: number, rowsOf: number): SourceTensor => ({
    name: `${module}.switch_mlp.${of}.weight`,
    dtype,
    shape: [experts, rowsOf, cols],
    parts: experts,
    read: (expert) => checkpoint.tensor(source).view((expert * rows + begin) * cols, [rowsOf, cols]),
  });
  return both ? [stack("gate_proj", 0, rows / 2), stack("up_proj", rows / 2, rows / 2)] : [stack(projection, 0, rows)];
}

/**
 * The tensors of a checkpoint by these names, those of experts as stacks under the names that mlx-lm has for them.
 * @throws MlxtsError `Safetensors` for experts that are missing or differ, and for dtypes that weights do not have
 */
export function sourceTensors(checkpoint: Checkpoint, names: readonly string[]): SourceTensor[] {
  const counts = new Map<string, number>();
  for (const name of names) {
    const [, module = "", , projection = ""] = EXPERT.exec(name) ?? [];
    const stack = `${module} ${projection}`;
    if (module) counts.set(stack, (counts.get(stack) ?? 0) + 1);
  }
  return names.flatMap((name) => {
    const [, module, projection] = STACK.exec(name) ?? [];
    if (module && projection) return splitStack(checkpoint, name, module, projection);
    const [, of, expert, matrix] = EXPERT.exec(name) ?? [];
    if (!of || !matrix) return [sourceTensor(checkpoint, name)];
    const count = counts.get(`${of} ${matrix}`) as number;
    // The stack stands where its first expert does. A number that is not below their count means that one is missing.
    return expert === "0" || Number(expert) >= count ? [expertStack(checkpoint, of, matrix, count)] : [];
  });
}
