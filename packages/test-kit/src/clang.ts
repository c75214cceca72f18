import { findClang } from "../packages/metal-sim/src/clang.ts";

/** Why the Metal simulator can compile no kernels here, or undefined. */
export function clangMissing(): string | undefined {
  try {
    findClang();
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}
