/**
 * Test files that `npm test` (MLXTS_RING=1) leaves to `npm run test:all`: wrong implementations, which judge the suites
 * and not the kernels; attacks that repeat one call thousands of times; builds for other machines.
 */
const SECOND_RING = [
  // Wrong implementations that suites must reject.
  "packages/delta-rule/test/mutants",
  "packages/delta-rule/test/channel_mutants",
  "packages/delta-rule/test/feature_mutants",
  "packages/metal-sim/test/mutants",
  // A worker writes indices while kernels run. moe's stays in the first ring: its kernels take all kinds of indices.
  "packages/nn/test/shared_indices",
  "packages/delta-rule/test/shared_indices",
  "packages/quant4/test/shared_indices",
  "packages/mla/test/shared_indices",
  // What is compiled for other machines.
  "scripts/native/cuda_kernels",
  "scripts/native/darwin",
  "scripts/metal/metal_api",
].map((path) => `${path}.test.ts`);

export const leftOut: readonly string[] = process.env.MLXTS_RING === "1" ? SECOND_RING : [];
