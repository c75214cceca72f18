// What can be read of an op's descriptor: its tensors and parameters in lists, and its rules as text.
import { wrongKind } from "./errors.ts";
import type { InputSpec, OpDescriptor, OutputSpec, ParamSpec, RecordSpec, ShapeRule, TensorSpec } from "./op_types.ts";
import { namesOf } from "./options.ts";

/** The dimensions of each form of a shape rule: letters, numbers and `...`. */
export const formsOf = (rule: string): string[][] => rule.split(" | ").map((form) => form.split(" "));

/** The form of a shape rule that has `rank` dimensions; `...` stands for any number of them. */
export const formFor = (rule: string, rank: number): string[] | undefined =>
  formsOf(rule).find((form) => (form[0] === "..." ? form.length - 1 <= rank : form.length === rank));

const isRecord = (spec: InputSpec): spec is RecordSpec => "tensors" in spec;

/** Refuses what is not the `op` of an op. */
export function checkDescriptor(op: string, descriptor: unknown): void {
  const names = namesOf(op, "descriptor", descriptor, "be the `op` of an op");
  if (!names.includes("inputs")) throw wrongKind(op, "descriptor", "be the `op` of an op", descriptor);
}

/** All tensors of the inputs, those of records by their own names. */
export function inputTensors(
  descriptor: Pick<OpDescriptor, "inputs">,
): [name: string, spec: TensorSpec, record?: string][] {
  checkDescriptor("inputTensors", descriptor);
  return Object.entries(descriptor.inputs).flatMap(([name, spec]): [string, TensorSpec, string?][] =>
    isRecord(spec) ? Object.entries(spec.tensors).map(([field, s]) => [field, s, name]) : [[name, spec]],
  );
}

/** All parameters: the options and the attributes of record inputs. */
export function opParams(
  descriptor: Pick<OpDescriptor, "inputs" | "params">,
): [name: string, spec: ParamSpec, record?: string][] {
  checkDescriptor("opParams", descriptor);
  const attributes = Object.entries(descriptor.inputs).flatMap(([name, spec]): [string, ParamSpec, string?][] =>
    isRecord(spec) ? Object.entries(spec.attributes).map(([field, s]) => [field, s, name]) : [],
  );
  return [...attributes, ...Object.entries(descriptor.params).map(([name, spec]): [string, ParamSpec] => [name, spec])];
}

/** A shape rule as messages and documents show it: `[..., D]`. */
export function shapeText(rule: ShapeRule): string {
  if (typeof rule !== "string") namesOf("shapeText", "rule", rule, "be the shape of a tensor's spec");
  const forms = typeof rule === "string" ? formsOf(rule) : [[rule.text]];
  return forms.map((form) => `[${form.join(", ")}]`).join(" or ");
}

/** What each call needs of a descriptor, computed once. */
export interface DescriptorLists {
  readonly inputs: ReturnType<typeof inputTensors>;
  readonly outputs: readonly [name: string, spec: OutputSpec][];
  readonly params: ReturnType<typeof opParams>;
  /** Inputs that are records. */
  readonly records: readonly string[];
  /** All that `inputs` may name. */
  readonly names: readonly string[];
}

export function listsOf(descriptor: OpDescriptor): DescriptorLists {
  const { inputs, outputs } = descriptor;
  return {
    inputs: inputTensors(descriptor),
    outputs: Object.entries(outputs),
    params: opParams(descriptor),
    records: Object.keys(inputs).filter((name) => isRecord(inputs[name] as InputSpec)),
    names: [...Object.keys(inputs), ...Object.keys(outputs)],
  };
}

/** The values that a parameter may have, as messages and documents show them: `an integer ≥ 1`. */
export function paramText(spec: ParamSpec): string {
  if (!namesOf("paramText", "spec", spec, "be the spec of a parameter").includes("kind"))
    throw wrongKind("paramText", "spec", "be the spec of a parameter", spec);
  if (spec.kind === "boolean") return "true or false";
  if (spec.kind === "choice") return `one of ${spec.values.join(", ")}`;
  const bounds = [
    spec.min !== undefined && `≥ ${spec.min}`,
    spec.above !== undefined && `> ${spec.above}`,
    spec.max !== undefined && `≤ ${spec.max}`,
  ]
    .filter(Boolean)
    .join(" and ");
  return `${spec.integer ? "an integer" : "a finite number"}${bounds ? ` ${bounds}` : ""}`;
}
