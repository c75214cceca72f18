// What a recording is made of before it gets its final form: dispatches, the calls of ops that they come from, and barriers
// that were asked for.
import type { Dispatch } from "./dispatch.ts";
import type { OpDescriptor } from "./op_types.ts";
import type { Accesses } from "./ranges.ts";
import type { Tensor } from "./tensor.ts";

/** A call of an op, as it was checked. */
export interface OpCall {
  /** The op's name. */
  readonly op: string;
  readonly descriptor: OpDescriptor;
  /** Input tensors, those of records one by one. */
  readonly tensors: Readonly<Record<string, Tensor>>;
  /** The inputs as they were given: records whole. */
  readonly inputs: Readonly<Record<string, unknown>>;
  readonly outputs: Readonly<Record<string, Tensor | undefined>>;
  /** Options with defaults filled in. */
  readonly options: Readonly<Record<string, unknown>>;
}

/** One dispatch and the memory that it accesses. */
export interface GraphNode {
  readonly dispatch: Dispatch;
  readonly accesses: Accesses;
  /** The call that dispatches; undefined for a program's own `encoder.dispatch`. */
  readonly call: OpCall | undefined;
}

/** The commands of a recording, in order. */
export type Graph = readonly (GraphNode | "barrier")[];
