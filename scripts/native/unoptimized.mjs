/**
 * What is compiled without optimization, in a fraction of the time, because only tests need it. MLXTS_UNOPTIMIZED is `1`:
 * what nothing on this machine runs, which is other processors' kernels, and PTX where there is no GPU. `others`: also
 * kernels of this processor's other levels. Whoever builds without it compiles these again.
 */
export const unoptimized = () => ["1", "others"].includes(process.env.MLXTS_UNOPTIMIZED ?? "");

export const onlyBestOptimized = () => process.env.MLXTS_UNOPTIMIZED === "others";
