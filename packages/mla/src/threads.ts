/** Lanes of a simdgroup. */
export const SIMD = 32;
/** Threads of a GPU's threadgroup, for most kernels. */
export const MOST_THREADS = 256;

/** Threads for a row of `size` elements, `perThread` to a thread: whole simdgroups, at most `MOST_THREADS`. */
export const rowThreads = (size: number, perThread: number) =>
  Math.min(MOST_THREADS, SIMD * Math.ceil(size / (perThread * SIMD)));

/** Rows of a threadgroup that has `threads` threads for each, side by side; there are `rows` in all. */
export const rowsTogether = (rows: number, threads: number) => Math.min(rows, Math.floor(MOST_THREADS / threads));
