/** Lanes of a simdgroup. */
export const SIMD = 32;
/** Threads of a GPU's threadgroup, for most kernels. */
export const MOST_THREADS = 256;
/** The same where one threadgroup searches a whole row of logits, on Apple's GPUs and on NVIDIA's. */
export const SEARCH_THREADS = 512;
export const CUDA_SEARCH_THREADS = 1024;

/** Elements that so many threads of a GPU take at a time: each a vector of four. */
export const vectorElements = (threads: number) => 4 * threads;

/** Threads for a row of `size` elements, a vector to a thread: whole simdgroups, at most `most`. */
export const rowThreads = (size: number, most = MOST_THREADS) =>
  Math.min(most, SIMD * Math.ceil(size / vectorElements(SIMD)));

/** Rows of a threadgroup that has `threads` threads for each, side by side; there are `rows` in all. */
export const rowsTogether = (rows: number, threads: number) => Math.min(rows, Math.floor(MOST_THREADS / threads));
