/** A half-open interval of memory addresses. */
export interface Range {
  readonly begin: number;
  readonly end: number;
}

export function overlaps(a: Range, b: Range): boolean {
  return a.begin < b.end && b.begin < a.end;
}

export function sameRange(a: Range, b: Range): boolean {
  return a.begin === b.begin && a.end === b.end;
}

/** What a dispatch touches: memory addresses, not buffer objects, so two wraps of the same pages alias. */
export interface Accesses {
  label: string;
  reads: Range[];
  writes: Range[];
  /** The text of what the kernel has found wrong in its data. */
  fault?: (code: number, words: [number, number, number]) => string | undefined;
  /** What `MLXTS_DEBUG` shows beside the label. */
  note?: string;
}
