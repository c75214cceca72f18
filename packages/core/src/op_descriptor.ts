// What can be read of an op's descriptor: its tensors and parameters in lists, and its rules as text.
import { wrongKind } from "./errors.ts";
import type {
  DtypeRule,
  InputSpec,
  OpDescriptor,
  OutputSpec,
  ParamSpec,
  RecordSpec,
  ShapeRule,
  TensorSpec,
} from "./op_types.ts";
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

type NumberSpec = Extract<ParamSpec, { kind: "number" }>;

const isRecord = (spec: InputSpec): spec is RecordSpec => "tensors" in spec;

/** Refuses what is not the `op` of an op. */
export function checkDescriptor(op: string, descriptor: unknown): void {
  const names = namesOf(op, "descriptor", descriptor, "be the `op` of an op");
  if (!names.includes("inputs")) throw wrongKind(op, "descriptor", "be the `op` of an op", descriptor);
}

/** A tensor or a parameter; those of a record input with its name and their own there. */
type Named<S> = [name: string, spec: S, record?: string, part?: string];

/** Before the names of the parts of a record input: its name, where there would be others like them. */
const prefixOf = (input: string, { tensor }: RecordSpec, inputs: OpDescriptor["inputs"]) =>
  tensor || Object.values(inputs).filter((spec) => isRecord(spec) && !spec.tensor).length > 1 ? `${input}.` : "";

function tensorsOf(inputs: OpDescriptor["inputs"]): Named<TensorSpec>[] {
  return Object.entries(inputs).flatMap(([input, spec]): Named<TensorSpec>[] => {
    if (!isRecord(spec)) return [[input, spec]];
    const { tensors, tensor, doc } = spec;
    const prefix = prefixOf(input, spec, inputs);
    const named = (rule: DtypeRule): DtypeRule =>
      rule.startsWith("=") && rule.slice(1) in tensors ? `=${prefix}${rule.slice(1)}` : rule;
    const parts = Object.entries(tensors).map(
      ([part, own]): Named<TensorSpec> => [`${prefix}${part}`, { ...own, dtype: own.dtype.map(named) }, input, part],
    );
    return tensor ? [[input, { ...tensor, ...(doc === undefined ? {} : { doc }), optional: true }], ...parts] : parts;
  });
}

function paramsOf({ inputs, params }: Pick<OpDescriptor, "inputs" | "params">): Named<ParamSpec>[] {
  const attributes = Object.entries(inputs).flatMap(([input, spec]) =>
    isRecord(spec)
      ? Object.entries(spec.attributes).map(
          ([part, own]): Named<ParamSpec> => [`${prefixOf(input, spec, inputs)}${part}`, own, input, part],
        )
      : [],
  );
  return [...attributes, ...Object.entries(params)];
}

/** The same where parts of records that need not be given, or not as records, are optional. */
const withOptional = <S extends TensorSpec | ParamSpec>(all: Named<S>[], { inputs }: Pick<OpDescriptor, "inputs">) =>
  all.map(([name, spec, ...of]): Named<S> => {
    const record = of[0] === undefined ? undefined : (inputs[of[0]] as RecordSpec);
    return record?.tensor || record?.optional ? [name, { ...spec, optional: true }, ...of] : [name, spec, ...of];
  });

/** All tensors of the inputs, those of records one by one. */
export function inputTensors(descriptor: Pick<OpDescriptor, "inputs">): Named<TensorSpec>[] {
  checkDescriptor("inputTensors", descriptor);
  return withOptional(tensorsOf(descriptor.inputs), descriptor);
}

/** All parameters: the options and the attributes of record inputs. */
export function opParams(descriptor: Pick<OpDescriptor, "inputs" | "params">): Named<ParamSpec>[] {
  checkDescriptor("opParams", descriptor);
  return withOptional(paramsOf(descriptor), descriptor);
}

/** A shape rule as messages and documents show it: `[..., D]`. */
export function shapeText(rule: ShapeRule): string {
  if (typeof rule !== "string") namesOf("shapeText", "rule", rule, "be the shape of a tensor's spec");
  if (typeof rule !== "string") return `[${rule.text}]`;
  return formsOf(rule)
    .map(({ open, dims }) => `[${[...(open ? ["..."] : []), ...dims].join(", ")}]`)
    .join(" or ");
}

/** One of `Named`, with names for its fields. */
interface Entry<S> {
  readonly name: string;
  readonly spec: S;
  readonly record: string | undefined;
  readonly part: string | undefined;
}

/** What each call needs of a descriptor, computed once. */
export interface DescriptorLists {
  readonly inputs: readonly Entry<TensorSpec>[];
  readonly outputs: readonly Entry<OutputSpec>[];
  readonly params: readonly Entry<ParamSpec>[];
  /** Inputs that are records. */
  readonly records: readonly string[];
  /** All that `inputs` may name. */
  readonly names: readonly string[];
}

export function listsOf(descriptor: OpDescriptor): DescriptorLists {
  const { inputs, outputs } = descriptor;
  const entries = <S>(all: readonly Named<S>[]) =>
    all.map(([name, spec, record, part]): Entry<S> => ({ name, spec, record, part }));
  return {
    inputs: entries(tensorsOf(inputs)),
    outputs: entries(Object.entries(outputs)),
    params: entries(paramsOf(descriptor)),
    records: Object.keys(inputs).filter((name) => isRecord(inputs[name] as InputSpec)),
    names: [...Object.keys(inputs), ...Object.keys(outputs)],
  };
}

/** The bounds of a number, after a space: ` ≥ 1 and ≤ 2`; nothing where there are none. */
export function boundsText({ min, above, max, below }: NumberSpec): string {
  const bounds = [
    min !== undefined && `≥ ${min}`,
    above !== undefined && `> ${above}`,
    max !== undefined && `≤ ${max}`,
    below !== undefined && `< ${below}`,
  ].filter(Boolean);
  return bounds.length > 0 ? ` ${bounds.join(" and ")}` : "";
}

/** The values that a parameter may have, as messages and documents show them: `an integer ≥ 1`. */
export function paramText(spec: ParamSpec): string {
  if (!namesOf("paramText", "spec", spec, "be the spec of a parameter").includes("kind"))
    throw wrongKind("paramText", "spec", "be the spec of a parameter", spec);
  if (spec.kind === "boolean") return "true or false";
  if (spec.kind === "choice") return `one of ${spec.values.join(", ")}`;
  return `${spec.integer ? "an integer" : "a finite number"}${boundsText(spec)}`;
}

/** Whether a number is one of the values that `paramText` names. */
export function numberFits(spec: NumberSpec, value: number): boolean {
  if (!Number.isFinite(value) || (spec.integer && !Number.isSafeInteger(value))) return false;
  if (spec.min !== undefined && value < spec.min) return false;
  if (spec.max !== undefined && value > spec.max) return false;
  if (spec.below !== undefined && value >= spec.below) return false;
  return spec.above === undefined || value > spec.above;
}

/**
 * The f32 of a number that fits, where kernels must not get it: infinity, or a 0 that is not one of the values that
 * `paramText` names.
 */
export function wrongAsF32(spec: NumberSpec, value: number): number | undefined {
  if (spec.integer || spec.f64) return undefined;
  const rounded = Math.fround(value);
  return Number.isFinite(rounded) && (rounded !== 0 || numberFits(spec, 0)) ? undefined : rounded;
}
