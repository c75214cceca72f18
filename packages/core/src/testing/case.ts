import type { CommandEncoder } from "../api.ts";
import type { DeviceKind } from "../device_options.ts";
import type { Dtype, FloatDtype } from "../dtype.ts";
import type { Kernel } from "../kernel.ts";
import type { OpDescriptor } from "../op_types.ts";
import type { ErrorClass } from "./metric.ts";

/** A tensor as references see it: exact numbers in f64. */
export interface Reference64 {
  shape: readonly number[];
  data: Float64Array;
}

/** An input of a case. `act` stands for the dtype under test; data of float dtypes is rounded before op and reference get it. */
export interface CaseInput {
  dtype: Dtype | "act";
  shape: readonly number[];
  data: ArrayLike<number>;
}

export interface Case {
  name: string;
  inputs: Record<string, CaseInput>;
  options?: Record<string, unknown>;
  /** Default: the suite's. */
  errorClass?: ErrorClass | Record<string, ErrorClass>;
  /** Only these activation dtypes. */
  dtypes?: readonly FloatDtype[];
  /** Optional outputs to ask for, with their shapes and dtypes. */
  ask?: Record<string, { dtype: Dtype | "act"; shape: readonly number[] }>;
  /** Inputs that begin at an odd byte on a CPU. */
  anyByte?: readonly string[];
  /** Tensors begin at multiples of 16 bytes: the case reaches a kernel that takes no others. */
  aligned?: boolean;
  /** Only on this kind of device: the case is that large to reach a kernel which others do not have. */
  only?: DeviceKind;
  /** Outputs that are passed as the view of an input. */
  inPlace?: Record<string, string>;
}

export type ReferenceFunction = (
  inputs: Record<string, Reference64>,
  options: Record<string, never>,
  dtype: FloatDtype,
) => Record<string, Reference64>;

// biome-ignore lint/suspicious/noExplicitAny: ops have differing signatures; their arguments come from the case
type AnyOp = ((encoder: CommandEncoder, inputs: any, options?: any) => unknown) & { readonly op: OpDescriptor };

/** What a suite proves of an op: one list of cases for every device and dtype, and wrong implementations it must reject. */
export interface Suite {
  op: AnyOp;
  /** The op in f64: from the rounded inputs, with outputs that are not rounded. */
  reference: ReferenceFunction;
  cases: readonly Case[];
  errorClass: ErrorClass | Record<string, ErrorClass>;
  /** Default: f32, f16 and bf16. */
  dtypes?: readonly FloatDtype[];
  /** Plausible wrong implementations, in the form of references. Each must fail at least one case by a factor of 1.2. */
  mutants?: Record<string, ReferenceFunction>;
}

/** What a check needs of a kernel to see whether each of its symbols has run. */
export type DeclaredKernel = Pick<Kernel, "library" | "name" | "variants">;
