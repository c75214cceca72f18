// The declaration of an op, checked and copied: a frozen descriptor, so that the checks of its calls stay what they are.
import { isDtype } from "./dtype.ts";
import { wrongKind, wrongValue } from "./errors.ts";
import type { OpDeclaration, OpDescriptor, OutputSpec, ParamSpec, RecordSpec, TensorSpec } from "./op_types.ts";
import { checkOptionNames, namesOf, type OptionNames } from "./options.ts";
import { isArray } from "./shape.ts";

const OP = "defineOp";

// biome-ignore lint/suspicious/noExplicitAny: of whatever inputs, outputs and options
type AnyDeclaration = OpDeclaration<any, any, any>;
type Steps = { [K in "relations" | "rules" | "check" | "encode"]: AnyDeclaration[K] | undefined };
type NumberSpec = Extract<ParamSpec, { kind: "number" }>;
type ChoiceSpec = Extract<ParamSpec, { kind: "choice" }>;

const DECLARATION: OptionNames<AnyDeclaration> = {
  name: true,
  summary: true,
  inputs: true,
  outputs: true,
  params: true,
  relations: true,
  rules: true,
  check: true,
  encode: true,
};
const TENSOR: OptionNames<TensorSpec> = { dtype: true, shape: true, doc: true, optional: true };
const OUTPUT: OptionNames<OutputSpec> = { ...TENSOR, inPlace: true, needs: true };
const RECORD: OptionNames<RecordSpec> = {
  type: true,
  tensors: true,
  attributes: true,
  tensor: true,
  doc: true,
  optional: true,
};
const COMMON = { kind: true, default: true, optional: true, doc: true };
const NUMBER: OptionNames<NumberSpec> = {
  ...COMMON,
  integer: true,
  min: true,
  max: true,
  above: true,
  below: true,
  f64: true,
};
const CHOICE: OptionNames<ChoiceSpec> = { ...COMMON, values: true };

/** Levels of nested objects, from a declaration down to the dtypes of a record's tensor. */
const DEPTH = 8;

/** A frozen copy of nested objects and arrays; functions and plain values are kept. */
function frozenCopy<T>(value: T, depth = 0): T {
  if (value === null || typeof value !== "object") return value;
  if (depth > DEPTH) throw wrongKind(OP, "declaration", `have at most ${DEPTH} objects in each other`, value);
  const copy = isArray(value)
    ? Array.from({ length: value.length }, (_, i) => frozenCopy(value[i], depth + 1))
    : Object.fromEntries(
        namesOf(OP, "declaration", value).map((name) => [name, frozenCopy(value[name as keyof T], depth + 1)]),
      );
  return Object.freeze(copy) as T;
}

function checkObject(argument: string, value: unknown): asserts value is Record<string, unknown> {
  namesOf(OP, argument, value);
}

const isDtypeRule = (rule: unknown): boolean => isDtype(rule) || (typeof rule === "string" && /^=\w+$/.test(rule));

function checkTensor(name: string, spec: Record<string, unknown>, computed: boolean): void {
  const { dtype, shape } = spec;
  const dtypes = Array.isArray(dtype) ? dtype : computed && typeof dtype === "function" ? [] : undefined;
  if (!dtypes?.every(isDtypeRule))
    throw wrongKind(OP, name, `have as dtype an array of dtypes or =names${computed ? ", or a function" : ""}`, dtype);
  const rule = shape as { text?: unknown; of?: unknown } | string | null | undefined;
  if (typeof rule !== "string" && !(typeof rule?.text === "string" && typeof rule.of === "function"))
    throw wrongKind(OP, name, "have as shape a text, or text and function", shape);
}

function checkInput(name: string, spec: unknown): void {
  checkObject(name, spec);
  if ("tensors" in spec) checkRecord(name, spec);
  else {
    checkOptionNames<object>(OP, spec, TENSOR as OptionNames<object>, name);
    checkTensor(name, spec, false);
  }
}

function checkRecord(name: string, spec: Record<string, unknown>): void {
  checkOptionNames<object>(OP, spec, RECORD as OptionNames<object>, name);
  const { type, tensors, attributes, tensor } = spec;
  if (typeof type !== "string") throw wrongKind(OP, name, "have as type a name", type);
  checkObject(name, tensors);
  checkObject(name, attributes);
  const own = tensor === undefined ? [] : [[name, tensor] as const];
  for (const [field, each] of [...own, ...Object.entries(tensors)]) {
    checkObject(field, each);
    checkOptionNames<object>(OP, each, TENSOR as OptionNames<object>, field);
    checkTensor(field, each, false);
  }
  for (const [field, param] of Object.entries(attributes)) checkParam(field, param);
}

function checkOutput(name: string, spec: unknown): void {
  checkObject(name, spec);
  checkOptionNames<object>(OP, spec, OUTPUT as OptionNames<object>, name);
  checkTensor(name, spec, true);
}

function checkParam(name: string, spec: unknown): void {
  checkObject(name, spec);
  const { kind, values } = spec;
  if (kind !== "number" && kind !== "boolean" && kind !== "choice")
    throw wrongKind(OP, name, "have as kind number, boolean or choice", kind);
  const names = kind === "number" ? NUMBER : kind === "choice" ? CHOICE : COMMON;
  checkOptionNames<object>(OP, spec, names as OptionNames<object>, name);
  if (kind === "choice" && !(Array.isArray(values) && values.length > 0))
    throw wrongKind(OP, name, "have an array of values", values);
}

/** The descriptor of an op and the functions of its own; the declaration is read once, and changing it changes nothing. */
export function readDeclaration(declaration: AnyDeclaration): {
  descriptor: OpDescriptor;
  steps: Steps & Pick<AnyDeclaration, "encode">;
} {
  checkOptionNames<object>(OP, declaration, DECLARATION as OptionNames<object>, "declaration");
  const { name, summary, inputs, outputs, params, relations, rules, check, encode } = declaration;
  for (const [argument, value] of Object.entries({ name, summary }))
    if (typeof value !== "string") throw wrongKind(OP, argument, "be a string", value);
  if (!/^[A-Za-z_]\w*$/.test(name)) throw wrongValue(OP, "name", "be an identifier", name);
  for (const [argument, value] of Object.entries({ inputs, outputs, params })) checkObject(argument, value);
  const descriptor: OpDescriptor = frozenCopy({ name, summary, inputs, outputs, params });
  for (const [input, spec] of Object.entries(descriptor.inputs)) checkInput(input, spec);
  for (const [output, spec] of Object.entries(descriptor.outputs)) checkOutput(output, spec);
  for (const [param, spec] of Object.entries(descriptor.params)) checkParam(param, spec);
  for (const [step, value] of Object.entries({ relations, rules, check, encode }))
    if (typeof value !== "function" && !(value === undefined && step !== "encode"))
      throw wrongKind(OP, step, "be a function", value);
  return { descriptor, steps: { relations, rules, check, encode } };
}
