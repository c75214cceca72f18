// What can be read of an op's descriptor: its tensors and parameters in lists, and its rules as text.
import { wrongKind } from "./errors.ts";
import type { InputSpec, OpDescriptor, OutputSpec, ParamSpec, RecordSpec, ShapeRule, TensorSpec } from "./op_types.ts";
import { namesOf } from "./options.ts";

/** One form of a shape rule: a letter or a number for each dimension, after any number of leading ones where it is open. */
interface ShapeForm {
  readonly open: boolean;
  readonly dims: readonly (string | number)[];
}

/** The forms of each rule that was asked for: every call of an op asks for those of its tensors. */
const parsed = new Map<string, readonly ShapeForm[]>();

function parseForm(form: string): ShapeForm {
  const words = form.split(" ");
  const open = words[0] === "...";
  const dims = (open ? words.slice(1) : words).map((word) => (/^\d+$/.test(word) ? Number(word) : word));
  return { open, dims };
}

/** The forms of a shape rule: `"B T H | B T H K"` has two. */
function formsOf(rule: string): readonly ShapeForm[] {
  let forms = parsed.get(rule);
  if (!forms) {
    forms = rule.split(" | ").map(parseForm);
    parsed.set(rule, forms);
  }
  return forms;
}

/** The form of a shape rule that fits a tensor of `rank` dimensions. */
export function formFor(rule: string, rank: number): ShapeForm | undefined {
  for (const form of formsOf(rule)) if (form.open ? form.dims.length <= rank : form.dims.length === rank) return form;
  return undefined;
}

/** The first form of a shape rule, for tensors that none fits. */
export const firstForm = (rule: string): ShapeForm => formsOf(rule)[0] as ShapeForm;

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
  if (typeof rule !== "string") return `[${rule.text}]`;
  return formsOf(rule)
    .map(({ open, dims }) => `[${[...(open ? ["..."] : []), ...dims].join(", ")}]`)
    .join(" or ");
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

/** Whether a number is one of the values that `paramText` names. */
export function numberFits(spec: Extract<ParamSpec, { kind: "number" }>, value: number): boolean {
  if (!Number.isFinite(value) || (spec.integer && !Number.isSafeInteger(value))) return false;
  if (spec.min !== undefined && value < spec.min) return false;
  if (spec.max !== undefined && value > spec.max) return false;
  return spec.above === undefined || value > spec.above;
}
