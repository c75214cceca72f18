// The files of a new op: a working identity op with its declaration, reference, CPU and Metal kernels, suite and benchmark.

export interface NewOp {
  /** In snake_case: the files' stem and the kernel's name. */
  stem: string;
  /** In camelCase: the op's name. */
  name: string;
  /** In PascalCase: its type, and the stem of its structs. */
  type: string;
  /** In capitals: the stem of its macros. */
  macro: string;
  /** The constant of the package's `src/library.ts`. */
  library: string;
}

const declaration = ({
  stem,
  name,
  type,
  library,
}: NewOp) => `import { defineKernel, defineOp, FLOATS } from "@mlxts/core";
import { ${library} } from "./library.ts";
import type { ${type} } from "./signatures.ts";

export const ${name}Kernel = defineKernel({
  library: ${library},
  name: "${stem}",
  variants: FLOATS,
  buffers: { x: "read", out: "write" },
  params: { size: "u32" },
  inPlace: [["out", "x"]],
  constants: { cpu: { elements: 4096 }, gpu: { threads: 256 } },
  launch: {
    cpu: ({ size }: { size: number }, { constants: { elements } }) => ({
      threadgroups: [Math.ceil(size / elements), 1, 1],
    }),
    gpu: ({ size }: { size: number }, { constants: { threads } }) => ({
      threadgroups: [Math.ceil(size / threads), 1, 1],
      threadsPerThreadgroup: [threads, 1, 1],
    }),
  },
});

/**
 * A copy: \`out = x\`.
 *
 * - \`x\`, \`out\` [..] f32, f16 or bf16. \`out\` may be exactly \`x\`.
 *
 * Exact. Errors: \`InvalidArgument\` for shapes, dtypes and partial overlap.
 */
export const ${name}: ${type} = defineOp({
  name: "${name}",
  summary: "x",
  inputs: { x: { dtype: FLOATS, shape: "...", doc: "what is copied" } },
  outputs: { out: { dtype: ["=x"], shape: "...", inPlace: ["x"], doc: "the copy" } },
  params: {},
  encode({ encoder, op, inputs: { x }, outputs: { out } }) {
    const { size } = x;
    encoder.dispatch(${name}Kernel, { op, variant: x.dtype, buffers: { x, out }, params: { size }, sizes: { size } });
  },
});
`;

const reference = ({ name }: NewOp) => `
/** \`x\` */
export function ${name}Reference(x: Float64Array): Float64Array {
  return x.slice();
}
`;

const cpuKernel = ({ stem, type, macro }: NewOp) => `// One threadgroup: some elements.
#include "cpu_kernel.h"
#include "simd.h"
#include "${stem}.params.h"

using namespace mlxts;

namespace {

template <typename T>
void ${stem}(const Launch& l) {
  const auto& p = l.args<${type}Params>();
  const uint64_t begin = l.begin * ${macro}_ELEMENTS;
  const uint64_t end = l.end == l.threadgroups[0] ? p.size : l.end * ${macro}_ELEMENTS;
  const T* x = l.buffer<const T>(${macro}_X) + begin;
  T* out = l.buffer<T>(${macro}_OUT) + begin;
  for_lanes(
      end - begin, [&](size_t i) { store(out + i, load(x + i)); },
      [&](size_t i, int n) { store_partial(out + i, load_partial(x + i, n), n); });
}

}  // namespace

MLXTS_KERNEL(${stem}_f32, ${stem}<float>)
MLXTS_KERNEL(${stem}_f16, ${stem}<f16>)
MLXTS_KERNEL(${stem}_bf16, ${stem}<bf16>)
`;

const metalKernel = ({ stem, type, macro }: NewOp) => `// One thread: one element.
#include "metal_kernel.h"
#include "${stem}.params.h"

using namespace metal;
using namespace mlxts;

template <typename T>
kernel void ${stem}(device const T* x [[buffer(${macro}_X)]], device T* out [[buffer(${macro}_OUT)]],
                    constant ${type}Params& p [[buffer(${macro}_PARAMS)]],
                    uint i [[thread_position_in_grid]]) {
  if (i < p.size) out[i] = x[i];
}

#define ${macro}(name, T) template [[host_name("${stem}_" name)]] [[kernel]] decltype(${stem}<T>) ${stem}<T>;
${macro}("f32", float)
${macro}("f16", half)
${macro}("bf16", bfloat)
`;

const suite = ({
  name,
}: NewOp) => `import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { ${name} } from "../src/index.ts";
import { ${name}Reference } from "../src/reference.ts";

const random = new Random(1);

const makeCase = (shape: readonly number[]): Case => ({
  name: \`[\${shape}]\`,
  inputs: { x: { dtype: "act", shape, data: random.normals(shape.reduce((a, b) => a * b, 1)) } },
});

const reference =
  (formula: (x: Float64Array) => Float64Array): ReferenceFunction =>
  ({ x }) => {
    const { shape, data } = x as Reference64;
    return { out: { shape, data: formula(data) } };
  };

export const suite: Suite = {
  op: ${name},
  errorClass: "exact",
  reference: reference(${name}Reference),
  cases: [
    ...[1, 2, 3, 4, 5, 15, 16, 17, 31, 33, 255, 257, 4095, 4096, 4097, 10000].map((size) => makeCase([size])),
    makeCase([2, 3, 5]),
    { ...makeCase([67]), inPlace: { out: "x" } },
  ],
  mutants: {
    "last element not written": reference((x) => x.map((v, i) => (i < x.length - 1 ? v : Number.NaN))),
    "sign lost": reference((x) => x.map(Math.abs)),
  },
};
`;

const bench = ({ name }: NewOp) => `import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { ${name} } from "../src/index.ts";

const random = new Random(1);

const makeCase = (size: number, dtype: FloatDtype): BenchCase => ({
  name: \`[\${size}] \${dtype}\`,
  bytes: 2 * size * DTYPES[dtype].bytesPerElement,
  flops: 0,
  setup(device) {
    const x = device.tensor(dtype, [size], random.normals(size));
    const out = device.tensor(dtype, [size]);
    return { encode: (encoder) => void ${name}(encoder, { x, out }) };
  },
});

export default defineBench({ op: "${name}", cases: [makeCase(1 << 20, "f32"), makeCase(1 << 20, "bf16")] });
`;

/** Paths within the package, and their texts. */
export const newFiles = (op: NewOp): Record<string, string> => ({
  [`src/${op.stem}.ts`]: declaration(op),
  [`native/${op.stem}.cpp`]: cpuKernel(op),
  [`native/${op.stem}.metal`]: metalKernel(op),
  [`test/${op.stem}.suite.ts`]: suite(op),
  [`bench/${op.stem}.bench.ts`]: bench(op),
});

/** What is added at the end of files that the package has. */
export const additions = (op: NewOp): Record<string, string> => ({
  "src/index.ts": `export { ${op.name} } from "./${op.stem}.ts";\n`,
  "src/reference.ts": reference(op),
});
