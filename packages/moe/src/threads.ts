/** Lanes of a simdgroup. */
export const SIMD = 32;
/** Threads of a GPU's threadgroup, at most. */
const MOST_THREADS = 256;

/** Threads for a row of `size` elements, four to a thread: whole simdgroups. */
export const rowThreads = (size: number) => Math.min(MOST_THREADS, SIMD * Math.ceil(size / (4 * SIMD)));
