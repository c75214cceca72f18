/** Threads of a GPU for a row of `size` elements, four to a thread: whole simdgroups, at most `most`. */
export const rowThreads = (size: number, most: number) => Math.min(most, 32 * Math.ceil(size / 128));
