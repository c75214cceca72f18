// Builds the kernels for NVIDIA's GPUs, without one: npm run cuda -- [PACKAGE…], e.g. `npm run cuda -- norms core`.
import "@mlxts/test-kit/source_hooks";

const { buildCuda } = await import("./cuda_kernels.ts");
const packages = process.argv.slice(2);
try {
  const started = performance.now();
  const { compiled, upToDate, symbols, bytes } = await buildCuda(packages.length > 0 ? packages : undefined);
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  const size = (bytes / 1e6).toFixed(1);
  console.log(
    `compiled ${symbols} symbols of ${compiled} kernels in ${seconds} s; ${upToDate} kernels were up to date; ${size} MB`,
  );
} catch (error) {
  console.error(error.message);
  process.exit(1);
}
