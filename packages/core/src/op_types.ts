// What an op is: its declaration, the types of its calls that follow from it, and what tools read of it.
import type { CommandEncoder, Device, Tensor } from "./api.ts";
import type { Dtype } from "./dtype.ts";

/** A dtype, or `=name`: the dtype of another tensor of the op. */
export type DtypeRule = Dtype | `=${string}`;

/**
 * A shape as letters: `"... D"`, `"B T H K"`, `"N 3"`. `...` is any number of leading dimensions; a letter has one
 * value in the whole op, taken from the first tensor that has it. `"B T H | B T H K"` stands for the form with as many
 * dimensions as the tensor has. A shape that must be computed has a text and a function, which also gets the shape of
 * the tensor that is checked, if there is one.
 */
export type ShapeRule = string | { text: string; of(c: OpContext, given: readonly number[]): readonly number[] };

export interface TensorSpec {
  dtype: readonly DtypeRule[];
  shape: ShapeRule;
  doc?: string;
  optional?: boolean;
}

/**
 * Several tensors and their attributes passed as one value, e.g. a quantized matrix. Where checks, messages and tools name
 * them one by one, they go by their own names; by `input.part` if one plain tensor may be given in place of them, or if the
 * op has several records for which that is not so.
 */
export interface RecordSpec {
  /** What the value's type is called in generated signatures. */
  type: string;
  tensors: Record<string, TensorSpec>;
  attributes: Record<string, ParamSpec>;
  /** The tensor that may be given in place of the record. */
  tensor?: Omit<TensorSpec, "optional" | "doc">;
  doc?: string;
  optional?: boolean;
}

export interface OutputSpec extends Omit<TensorSpec, "dtype"> {
  /** Accepted dtypes, the first is allocated; or a function of the options. */
  dtype: readonly DtypeRule[] | ((c: OpContext) => Dtype);
  /** Inputs that may be exactly this view. */
  inPlace?: readonly string[];
  /** Options and inputs without which it cannot be asked for. */
  needs?: readonly string[];
}

export type ParamSpec =
  | {
      kind: "number";
      default?: number;
      optional?: true;
      integer?: boolean;
      min?: number;
      max?: number;
      above?: number;
      below?: number;
      /** The op computes with the number as given. Others that are no integers must be right as f32 too: kernels take that. */
      f64?: boolean;
      doc?: string;
    }
  | { kind: "boolean"; default?: boolean; optional?: true; doc?: string }
  | { kind: "choice"; values: readonly (string | number)[]; default?: string | number; optional?: true; doc?: string };

export type InputSpec = TensorSpec | RecordSpec;
type ParamValue<P> = P extends { kind: "choice"; values: readonly (infer V)[] }
  ? V
  : P extends { kind: "boolean" }
    ? boolean
    : number;
type IsOptional<S> = S extends { optional: true } | { default: string | number | boolean } ? true : false;
type OptionalKeys<T> = { [K in keyof T]: IsOptional<T[K]> extends true ? K : never }[keyof T];
type Values<T, Map> = { [K in Exclude<keyof T, OptionalKeys<T>>]: Map[K & keyof Map] } & {
  [K in OptionalKeys<T>]?: Map[K & keyof Map] | undefined;
};
type ParamMap<P> = { [K in keyof P]: ParamValue<P[K]> };
type RecordValue<R extends RecordSpec> = { [K in keyof R["tensors"]]: Tensor } & ParamMap<R["attributes"]>;
type InputValue<S> = S extends RecordSpec
  ? Readonly<RecordValue<S>> | (S extends { tensor: object } ? Tensor : never)
  : Tensor;
type InputMap<I> = { [K in keyof I]: InputValue<I[K]> };

export type OpInputs<I, O> = Values<I, InputMap<I>> & { [K in keyof O]?: Tensor | true | undefined };
export type OpOptions<P> = Values<P, ParamMap<P>>;
type IsUnion<T, U = T> = T extends unknown ? ([U] extends [T] ? false : true) : never;
type OutputMap<O> = { [K in keyof O]: O[K] extends { optional: true } ? Tensor | undefined : Tensor };
export type OpResult<O> = IsUnion<keyof O> extends true ? OutputMap<O> : Tensor;

/** In generated signatures: the outputs of a call with inputs `G`. Optional ones are there where they were asked for. */
export type OutputsOf<O, G> = {
  readonly [K in keyof O]-?: undefined extends O[K]
    ? K extends keyof G
      ? G[K] extends Tensor | true
        ? Tensor
        : Tensor | undefined
      : Tensor | undefined
    : Tensor;
};

/** In generated signatures: `G` has no names but those of `Known`. */
export type OnlyKnown<G, Known> = { readonly [K in Exclude<keyof G, keyof Known>]: never };

/** What an op's own checks and its encoding see. */
export interface OpContext<
  I = Record<string, InputSpec>,
  O = Record<string, OutputSpec>,
  P = Record<string, ParamSpec>,
> {
  readonly op: string;
  readonly encoder: CommandEncoder;
  readonly device: Device;
  /** Input tensors, those of records one by one. */
  readonly tensors: Readonly<Record<string, Tensor>>;
  readonly inputs: Values<I, InputMap<I>>;
  /** Outputs: those passed in, the others allocated once all checks have passed. */
  readonly outputs: OutputMap<O>;
  /** Options with defaults filled in, and the attributes of records. */
  readonly options: { [K in keyof P]: ParamValue<P[K]> } & Record<string, unknown>;
  /** The value of each letter. */
  readonly dims: Readonly<Record<string, number>>;
  /** The dimensions of `...`, and their product. */
  readonly lead: readonly number[];
  readonly rows: number;
  /** Throws the argument error of this op. */
  fail(argument: string, rule: string, value: unknown, remedy?: string): never;
}

export interface OpDeclaration<
  I extends Record<string, InputSpec>,
  O extends Record<string, OutputSpec>,
  P extends Record<string, ParamSpec>,
> {
  name: string;
  /** One line: the formula. */
  summary: string;
  inputs: I;
  outputs: O;
  params: P;
  /** Relations between dimensions; runs before options and tensors are checked. */
  relations?(c: OpContext<I, O, P>): void;
  /** Rules that involve several tensors or options; runs before aliasing is checked. */
  rules?(c: OpContext<I, O, P>): void;
  /** Further checks, of room in an arena for example; runs last, before anything is allocated. */
  check?(c: OpContext<I, O, P>): void;
  encode(c: OpContext<I, O, P>): void;
}

/** What tools read of an op: its name, tensors and parameters. */
export interface OpDescriptor {
  readonly name: string;
  readonly summary: string;
  readonly inputs: Readonly<Record<string, InputSpec>>;
  readonly outputs: Readonly<Record<string, OutputSpec>>;
  readonly params: Readonly<Record<string, ParamSpec>>;
}

type Callable<I, O, P> =
  OptionalKeys<P> extends infer K
    ? keyof P extends K
      ? (encoder: CommandEncoder, inputs: OpInputs<I, O>, options?: OpOptions<P>) => OpResult<O>
      : (encoder: CommandEncoder, inputs: OpInputs<I, O>, options: OpOptions<P>) => OpResult<O>
    : never;

/** An op: a plain function that checks its arguments and encodes dispatches, and its descriptor. */
export type Op<I, O, P> = Callable<I, O, P> & { readonly op: OpDescriptor };
