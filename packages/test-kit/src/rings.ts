/** Whether these are the tests of `npm test`, which sets MLXTS_RING. */
export const firstRing = process.env.MLXTS_RING === "1";

/**
 * Test files that `npm test` leaves to `npm run test:all`: wrong implementations, which judge the suites
 * and not the kernels; attacks that repeat one call thousands of times; an op made in a copy of the repository; the build
 * scripts, and builds for other machines.
 */
const SECOND_RING = [
  // Wrong implementations that suites must reject.
  "packages/delta-rule/test/mutants",
  "packages/delta-rule/test/channel_mutants",
  "packages/delta-rule/test/feature_mutants",
  "packages/metal-sim/test/mutants",
  // A worker writes indices while kernels run. The first ring has moe's.
  "packages/nn/test/shared_indices",
  "packages/delta-rule/test/shared_indices",
  "packages/quant4/test/shared_indices",
  "packages/mla/test/shared_indices",
  // Every case of every op through `mlxts verify`; tables that grow with 16 000 submissions.
  "apps/cli/test/verify",
  "packages/core/test/growth",
  // Every tile of the shared headers; the kernels that use them run in the first ring.
  "packages/core/test/metal_tile",
  // The shaders under a second and a third compiler; the first ring compiles and runs them.
  "scripts/metal/metal_lint",
  // A copy of the repository in which an op is made and everything is checked.
  "scripts/generate/new_op",
  // Builds of clones that have moved, lost their compiler or are built twice at once.
  "scripts/native/build_native",
  // What is compiled for other machines.
  "scripts/native/cuda_kernels",
  // Every case of every op on a driver whose kernels do nothing.
  "scripts/check/cuda_cases",
  "scripts/native/darwin",
  "scripts/metal/metal_api",
].map((path) => `${path}.test.ts`);

/** How often a random test runs: in the first ring a quarter as often, with the first seeds. */
export const repeated = (times: number): number => (firstRing ? Math.ceil(times / 4) : times);

export const leftOut: readonly string[] = firstRing ? SECOND_RING : [];
