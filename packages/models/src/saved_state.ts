import { DTYPES, type Dtype, type RawArray, wrongKind, wrongValue } from "@mlxts/core";

/** The contents of one sequence of a state, on the host. */
export interface SavedState {
  tokens: number;
  tensors: Record<string, { dtype: Dtype; shape: readonly number[]; data: RawArray }>;
}

/** Checks the form of a saved state; returns its number of tokens. */
export function savedTokens(op: string, saved: SavedState, capacity: number): number {
  const tensors: unknown = saved?.tensors;
  if (tensors === null || typeof tensors !== "object")
    throw wrongKind(op, "saved", "be what state.save returned", saved);
  const { tokens } = saved;
  if (!Number.isInteger(tokens) || tokens < 0 || tokens > capacity)
    throw wrongValue(op, "saved", `hold at most ${capacity} tokens`, tokens);
  return tokens;
}

/** The elements of a saved tensor, which must have that dtype and shape. */
export function savedData(
  op: string,
  saved: SavedState,
  name: string,
  dtype: Dtype,
  shape: readonly number[],
): RawArray {
  const found = Object.hasOwn(saved.tensors, name) ? saved.tensors[name] : undefined;
  const data = found?.data;
  const refuse = (value: string): never => {
    throw wrongValue(op, "saved", `have \`${name}\` as ${dtype} [${shape.join(", ")}]`, value);
  };
  if (!found) return refuse("nothing");
  if (found.dtype !== dtype || !Array.isArray(found.shape) || found.shape.join() !== shape.join())
    return refuse(`${found.dtype} [${Array.isArray(found.shape) ? found.shape.join(", ") : found.shape}]`);
  const { array } = DTYPES[dtype];
  const size = shape.reduce((a, b) => a * b, 1);
  if (!(data instanceof array)) return refuse("data of another kind");
  return data.length === size ? data : refuse(`${data.length} elements`);
}
