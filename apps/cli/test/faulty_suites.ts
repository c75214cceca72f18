// Suites for the tests of `mlxts verify`: right and wrong ops, and some that end the process that runs them.
import { type CommandEncoder, MlxtsError } from "@mlxts/core";
import type { DeclaredKernel, Suite } from "@mlxts/core/testing";
import { l2Norm } from "@mlxts/norms";
import { kernels as normsKernels, suites as normsSuites } from "@mlxts/norms/testing";

const right = normsSuites.find(({ op }) => op === l2Norm) as Suite;

type Inputs = Parameters<typeof l2Norm>[1];
type Call = (encoder: CommandEncoder, inputs: Inputs, options: { eps: number }) => unknown;

/** A suite of two cases, which its op tells apart by eps: 1e-6 and 2e-6. */
const suite = (name: string, op: Call): Suite => ({
  ...right,
  op: Object.assign(op, { op: { ...l2Norm.op, name } }) as Suite["op"],
  dtypes: ["f32"],
  cases: [1, 2].map((i) => ({
    name: `case ${i}`,
    inputs: { x: { dtype: "act", shape: [4, 64], data: Float64Array.from({ length: 256 }, (_, at) => (at % 7) - 3) } },
    options: { eps: i / 1e6 },
  })),
});

let eps = 0;

export const suites: readonly Suite[] = [
  suite("right", (...given) => l2Norm(...given)),
  suite("wrong", (encoder, inputs) => l2Norm(encoder, inputs, { eps: 40 })),
  suite("throwing", () => {
    throw new Error("no such luck");
  }),
  suite("crashing", (...given) => {
    if (given[2].eps === 1e-6) process.kill(process.pid, "SIGKILL");
    return l2Norm(...given);
  }),
  suite("unsteady", (encoder, inputs) => l2Norm(encoder, inputs, { eps: eps++ })),
  suite("losing", () => {
    throw new MlxtsError("CommandBuffer", "losing: the device has been lost", { cause: "deviceLost" });
  }),
  suite("last", (...given) => l2Norm(...given)),
];

const declared = normsKernels.find(({ name }) => name === "l2_norm") as DeclaredKernel;
/** A kernel that these suites run in one dtype only, and one that no device has. */
export const kernels: readonly DeclaredKernel[] = [declared, { ...declared, name: "not_there", variants: ["f32"] }];
