/**
 * Whether what nothing on this machine runs is compiled without optimization, in a fraction of the time: other
 * processors' kernels, and PTX where there is no GPU. Tests set it, since they ask whether it compiles. Whoever builds
 * without it compiles these again.
 */
export const unoptimized = () => process.env.MLXTS_UNOPTIMIZED === "1";
