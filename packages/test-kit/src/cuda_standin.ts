// A stand-in for NVIDIA's driver, for machines without a GPU (packages/core/test/native/cuda_driver_standin).
import { fileURLToPath } from "node:url";

/** The library that stands in, where it is built. */
export const STANDIN = fileURLToPath(
  new URL(`../../core/test/prebuilds/${process.platform}-${process.arch}/cuda_driver_standin.so`, import.meta.url),
);

/** What a child process needs to open the device by itself; `words` change what the stand-in does (standin.h). */
export const childEnvironment = (report: string, words = ""): Record<string, string> => ({
  MLXTS_DEVICE: "cuda",
  MLXTS_CUDA_DRIVER: STANDIN,
  MLXTS_CUDA_STANDIN: words,
  MLXTS_CUDA_STANDIN_REPORT: report,
});
