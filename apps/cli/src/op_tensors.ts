import {
  DTYPES,
  type Dtype,
  encodeNumbers,
  type HostBytes,
  type HostTensor,
  inputTensors,
  isDtype,
  isFloat,
  type OpDescriptor,
  type RawArray,
  readStoredSafetensors,
  roundTo,
  wrongKind,
  wrongValue,
} from "@mlxts/core";

/** The name that an op gives a tensor or parameter; `given` may be spelled as in Python (`A_log`, `initial_state`), or `w` for a weight. */
export function knownName(given: string, known: readonly string[]): string {
  if (known.includes(given)) return given;
  const camel = given
    .replace(/^[A-Z]/, (c) => c.toLowerCase())
    .replace(/_+([A-Za-z0-9])/g, (_, c: string) => c.toUpperCase());
  if (known.includes(camel)) return camel;
  if (given === "w" && known.includes("weight")) return "weight";
  return given;
}

/** Dtypes in which numpy and PyTorch save plain numbers, and which no op takes: they are converted where that is exact. */
const CONVERTED = new Set(["F64", "I64", "U64", "BOOL"]);

/** The dtypes that an op takes for each of its tensors; tensors whose dtype its options decide are left out. */
function dtypeRules(op: OpDescriptor): Map<string, readonly string[]> {
  const outputs = Object.entries(op.outputs).map(([name, { dtype }]) => [name, dtype] as const);
  return new Map(
    [...inputTensors(op).map(([name, { dtype }]) => [name, dtype] as const), ...outputs].flatMap(([name, dtype]) =>
      typeof dtype === "function" ? [] : [[name, dtype] as const],
    ),
  );
}

/** The dtype in which each tensor of a file is given to an op. */
function chooseDtypes(op: OpDescriptor, stored: ReadonlyMap<string, HostBytes>): (name: string) => Dtype | undefined {
  const rules = dtypeRules(op);
  const choose = (name: string, path: readonly string[] = []): Dtype | undefined => {
    const found = stored.get(name);
    if (!found || path.includes(name)) return undefined;
    const taken = (rules.get(name) ?? []).flatMap((rule) =>
      isDtype(rule) ? rule : (choose(rule.slice(1), [...path, name]) ?? []),
    );
    const natural = found.dtype;
    if (!CONVERTED.has(found.storedDtype) || taken.length === 0 || (natural && taken.includes(natural))) return natural;
    const wide = taken.includes("f32") ? "f32" : taken[0];
    return found.storedDtype === "F64" ? wide : (taken.find((dtype) => !isFloat(dtype)) ?? wide);
  };
  return choose;
}

const arrayOf = { F64: Float64Array, I64: BigInt64Array, U64: BigUint64Array, BOOL: Uint8Array };

/** The elements converted to `dtype`; an element that is not exact in it is refused. */
function convert(op: string, name: string, { storedDtype, bytes }: HostBytes, dtype: Dtype): RawArray {
  const values = new arrayOf[storedDtype as keyof typeof arrayOf](bytes.buffer);
  const numbers = Float64Array.from(values as ArrayLike<number | bigint>, Number);
  const raw = isFloat(dtype) ? encodeNumbers(dtype, numbers) : new DTYPES[dtype].array(numbers.length);
  for (const [i, number] of numbers.entries()) {
    if (!isFloat(dtype)) raw[i] = number;
    const kept = isFloat(dtype) ? roundTo(dtype, number) : Number(raw[i]);
    const value = values[i] as number | bigint;
    const exact = typeof value === "bigint" ? Number.isInteger(kept) && BigInt(kept) === value : kept === number;
    if (!exact && !(Number.isNaN(kept) && Number.isNaN(number)))
      throw wrongValue(
        op,
        name,
        `be exact in ${dtype}`,
        `${value} at element ${i} of the file's ${storedDtype}`,
        `save it as ${dtype.toUpperCase()}`,
      );
  }
  return raw;
}

/**
 * The tensors of a file under the names that an op gives them. F64, I64, U64 and BOOL become a dtype that the op takes,
 * where every element is exact in it.
 * @throws TypeError for a tensor that the op does not know and for one that is missing, RangeError for one that is there
 *   twice and for elements that are not exact, MlxtsError for a file that cannot be read
 */
export function readOpTensors(op: OpDescriptor, path: string): Map<string, HostTensor> {
  const known = [...inputTensors(op).map(([name]) => name), ...Object.keys(op.outputs)];
  const stored = new Map<string, HostBytes>();
  const spelled = new Map<string, string>();
  for (const [given, tensor] of readStoredSafetensors(path)) {
    const name = knownName(given, known);
    if (!known.includes(name))
      throw wrongKind(op.name, given, `be one of ${known.join(", ")}`, "an unknown tensor name");
    if (stored.has(name))
      throw wrongValue(op.name, name, "be in the file once", `it as ${spelled.get(name)} and as ${given}`);
    stored.set(name, tensor);
    spelled.set(name, given);
  }
  for (const [name, { optional }] of inputTensors(op))
    if (!optional && !stored.has(name)) {
      const names = [...spelled.values()].join(", ");
      throw wrongKind(op.name, name, `be among the tensors of ${path}`, names === "" ? "none" : `only ${names}`);
    }
  const dtypeOf = chooseDtypes(op, stored);
  return new Map(
    [...stored].map(([name, tensor]): [string, HostTensor] => {
      const dtype = dtypeOf(name);
      const { shape, bytes, storedDtype: type } = tensor;
      if (dtype === undefined)
        throw wrongValue(op.name, name, "have a dtype that tensors have", type, "save it as another");
      const data =
        dtype === tensor.dtype ? new DTYPES[dtype].array(bytes.buffer) : convert(op.name, name, tensor, dtype);
      return [name, { dtype, shape, data }];
    }),
  );
}
