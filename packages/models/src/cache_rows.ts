import type { RawArray, Tensor } from "@mlxts/core";

/** Elements of the tensors of a state, on the host. */
export type NumberArray = Exclude<RawArray, BigInt64Array>;

/**
 * Rows `begin` … `end − 1` of one sequence of a cache [sequences, heads, capacity, D] or [sequences, capacity, D]: one view
 * for each head.
 */
function cacheRows(cache: Tensor, sequence: number, begin: number, end: number): Tensor[] {
  const [capacity, dim] = cache.shape.slice(-2) as [number, number];
  const heads = cache.shape.slice(1, -2).reduce((a, b) => a * b, 1);
  const own = cache.slice(sequence, sequence + 1);
  return Array.from({ length: heads }, (_, head) => own.view((head * capacity + begin) * dim, [end - begin, dim]));
}

/** Copies these rows to the host, head after head. */
export async function readCacheRows(cache: Tensor, sequence: number, begin: number, end: number): Promise<NumberArray> {
  const heads = cacheRows(cache, sequence, begin, end);
  const parts = (await Promise.all(heads.map((rows) => rows.read()))) as NumberArray[];
  const first = parts[0] as NumberArray;
  const data = new (first.constructor as new (length: number) => NumberArray)(first.length * parts.length);
  parts.forEach((part, i) => {
    data.set(part, i * first.length);
  });
  return data;
}

/** Writes rows that `readCacheRows` has read. */
export function writeCacheRows(cache: Tensor, sequence: number, begin: number, end: number, data: NumberArray): void {
  const heads = cacheRows(cache, sequence, begin, end);
  const size = data.length / heads.length;
  heads.forEach((rows, head) => {
    rows.write(data.subarray(head * size, (head + 1) * size));
  });
}
