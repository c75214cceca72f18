import type { Device } from "./api.ts";
import { type Dtype, isDtype } from "./dtype.ts";
import { CommandEncoder } from "./encoder.ts";
import { disposedError, MlxtsError, show, wrongKind, wrongValue } from "./errors.ts";
import { readDeclaration } from "./op_declaration.ts";
import type {
  DtypeRule,
  InputSpec,
  Op,
  OpContext,
  OpDeclaration,
  OpDescriptor,
  OutputSpec,
  ParamSpec,
  RecordSpec,
  ShapeRule,
  TensorSpec,
} from "./op_types.ts";
import { checkOptionNames, namesOf } from "./options.ts";
import { overlaps, sameRange } from "./ranges.ts";
import { Tensor } from "./tensor.ts";

/** The letters of each form of a shape. */
const formsOf = (rule: string): string[][] => rule.split(" | ").map((form) => form.split(" "));

/** The form of a shape with as many dimensions as there are, or with `...` for those that it does not name. */
const formFor = (rule: string, rank: number): string[] | undefined =>
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

/** What is asked of a descriptor at each call, worked out once. */
interface Lists {
  readonly inputs: ReturnType<typeof inputTensors>;
  readonly outputs: readonly [name: string, spec: OutputSpec][];
  readonly params: ReturnType<typeof opParams>;
  /** Inputs that are records. */
  readonly records: readonly string[];
  /** All that `inputs` may name. */
  readonly names: readonly string[];
}

function listsOf(descriptor: OpDescriptor): Lists {
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

class Check {
  readonly dims: Record<string, number> = {};
  lead: readonly number[] = [];
  readonly tensors: Record<string, Tensor> = {};
  readonly options: Record<string, string | number | boolean | undefined> = {};
  readonly outputs: Record<string, Tensor | undefined> = {};
  /** What was given, each value read once. */
  readonly inputs: Record<string, unknown> = {};
  readonly encoder: CommandEncoder;
  private readonly descriptor: OpDescriptor;
  private readonly lists: Lists;
  private readonly asked = new Set<string>();
  private leadBound = false;

  constructor(descriptor: OpDescriptor, lists: Lists, encoder: CommandEncoder) {
    this.descriptor = descriptor;
    this.lists = lists;
    this.encoder = encoder;
  }

  get op(): string {
    return this.descriptor.name;
  }
  get device(): Device {
    return this.encoder.device;
  }
  get rows(): number {
    return this.lead.reduce((a, b) => a * b, 1);
  }
  readonly fail = (argument: string, rule: string, value: unknown, remedy?: string): never => {
    throw wrongValue(this.op, argument, rule, value, remedy);
  };

  /** Every argument present and of the right kind, and no others. What is given is read once, here. */
  kinds(given: Record<string, unknown>, options: Record<string, unknown>): void {
    const { op, descriptor, lists, inputs } = this;
    if (!(this.encoder instanceof CommandEncoder)) throw wrongKind(op, "encoder", "be a CommandEncoder", this.encoder);
    for (const key of namesOf(op, "inputs", given, "be an object of tensors"))
      if (!lists.names.includes(key))
        throw wrongKind(op, key, `be one of ${lists.names.join(", ")}`, "an unknown tensor name");
    checkOptionNames(op, options, descriptor.params);
    for (const name of lists.names) {
      const value = given[name];
      if (value !== undefined) inputs[name] = value;
    }
    for (const record of lists.records) inputs[record] = this.record(record, inputs[record]);
    for (const [name, spec, record] of lists.inputs) {
      const value = (record === undefined ? inputs : (inputs[record] as Record<string, unknown>))[name];
      if (value === undefined && spec.optional) continue;
      if (!(value instanceof Tensor)) throw wrongKind(op, name, "be a Tensor", value);
      this.tensors[name] = value;
    }
    for (const [name] of lists.outputs) {
      const value = inputs[name];
      if (value === true) this.asked.add(name);
      else if (value !== undefined && !(value instanceof Tensor))
        throw wrongKind(op, name, "be a Tensor or true", value);
      else this.outputs[name] = value;
    }
    for (const [name, spec, record] of lists.params) {
      const given = (record === undefined ? options : (inputs[record] as Record<string, unknown>))[name];
      const value = given ?? spec.default;
      if (value === undefined && spec.optional) continue;
      if (spec.kind === "choice") {
        if (value === undefined) throw wrongKind(op, name, `be one of ${spec.values.join(", ")}`, value);
      } else if (typeof value !== spec.kind) throw wrongKind(op, name, `be a ${spec.kind}`, value);
      this.options[name] = value as string | number | boolean;
    }
  }

  /** A copy of a record: its tensors and attributes. */
  private record(name: string, given: unknown): Record<string, unknown> {
    const { tensors, attributes } = this.descriptor.inputs[name] as RecordSpec;
    namesOf(this.op, name, given, `be an object with ${Object.keys(tensors).join(", ")}`);
    const copy: Record<string, unknown> = {};
    for (const field of [...Object.keys(tensors), ...Object.keys(attributes)])
      copy[field] = (given as Record<string, unknown>)[field];
    return copy;
  }

  /** Gives each letter its value: from the first tensor, in signature order, whose rank fits. */
  bind(): void {
    for (const [name, { shape }] of this.lists.inputs) this.bindTensor(this.tensors[name], shape);
    for (const [name, { shape }] of this.lists.outputs) this.bindTensor(this.outputs[name], shape);
  }

  private bindTensor(tensor: Tensor | undefined, rule: ShapeRule): void {
    const letters = tensor && typeof rule === "string" && formFor(rule, tensor.shape.length);
    if (!letters) return;
    const open = letters[0] === "...";
    const named = open ? letters.slice(1) : letters;
    const extra = tensor.shape.length - named.length;
    if (open && !this.leadBound) {
      this.lead = tensor.shape.slice(0, extra);
      this.leadBound = true;
    }
    named.forEach((letter, i) => {
      if (!/^\d+$/.test(letter)) this.dims[letter] ??= tensor.shape[extra + i] as number;
    });
  }

  scalars(): void {
    for (const [name, spec] of this.lists.params) {
      const value = this.options[name];
      if (value === undefined) continue;
      if (spec.kind === "choice" && !spec.values.includes(value as string | number))
        this.fail(name, `be ${paramText(spec)}`, value);
      if (spec.kind !== "number") continue;
      const number = value as number;
      const rule = `be ${paramText(spec)}`;
      if (!Number.isFinite(number) || (spec.integer && !Number.isSafeInteger(number))) this.fail(name, rule, value);
      if (
        number < (spec.min ?? number) ||
        number > (spec.max ?? number) ||
        (spec.above !== undefined && !(number > spec.above))
      )
        this.fail(name, rule, value);
    }
  }

  /** The shape a rule asks for, with letters where no tensor has given a value. */
  expected(rule: ShapeRule, rank = 0): readonly (number | string)[] {
    if (typeof rule !== "string") return rule.of(this.context());
    const form = formFor(rule, rank) ?? (formsOf(rule)[0] as string[]);
    return form.flatMap((letter): readonly (number | string)[] => {
      if (letter === "...") return this.leadBound ? this.lead : ["..."];
      return [/^\d+$/.test(letter) ? Number(letter) : (this.dims[letter] ?? letter)];
    });
  }

  dtypesOf(rules: readonly DtypeRule[]): Dtype[] {
    return rules
      .map((rule) => (isDtype(rule) ? rule : (this.tensors[rule.slice(1)]?.dtype as Dtype)))
      .filter((dtype, i, all) => dtype && all.indexOf(dtype) === i);
  }

  outputDtypes(spec: OutputSpec): Dtype[] {
    return typeof spec.dtype === "function" ? [spec.dtype(this.context())] : this.dtypesOf(spec.dtype);
  }

  tensor(name: string, tensor: Tensor, dtypes: readonly Dtype[], shape: ShapeRule): void {
    if (tensor.device !== this.device) this.fail(name, "belong to the encoder's device", "a tensor of another device");
    if (tensor.disposed) throw disposedError(`tensor \`${name}\``);
    if (!dtypes.includes(tensor.dtype)) this.fail(name, `have dtype ${dtypes.join(" or ")}`, tensor.dtype);
    const expected = this.expected(shape, tensor.shape.length);
    if (expected.length !== tensor.shape.length || expected.some((dim, i) => dim !== tensor.shape[i]))
      this.fail(name, `have shape [${expected.join(", ")}]`, tensor.shape);
  }

  checkTensors(): void {
    for (const [name, spec] of this.lists.inputs) {
      const tensor = this.tensors[name];
      if (tensor) this.tensor(name, tensor, this.dtypesOf(spec.dtype), spec.shape);
    }
    for (const [name, spec] of this.lists.outputs) {
      const tensor = this.outputs[name];
      for (const option of tensor || this.asked.has(name) ? (spec.needs ?? []) : [])
        if (this.options[option] === undefined) this.fail(option, `be given with \`${name}\``, undefined);
      if (tensor) this.tensor(name, tensor, this.outputDtypes(spec), spec.shape);
    }
  }

  aliasing(): void {
    const given = Object.entries(this.outputs).filter((entry): entry is [string, Tensor] => entry[1] !== undefined);
    given.forEach(([name, tensor], i) => {
      if (tensor.buffer.readOnly) this.fail(name, "be writable", "a read-only tensor");
      for (const [other, second] of given.slice(0, i))
        if (overlaps(tensor.range, second.range)) this.fail(name, `not overlap \`${other}\``, "overlapping views");
      for (const [other, input] of Object.entries(this.tensors)) {
        if (!overlaps(tensor.range, input.range)) continue;
        const inPlace = this.descriptor.outputs[name]?.inPlace?.includes(other) ?? false;
        if (!(inPlace && sameRange(tensor.range, input.range)))
          this.fail(
            name,
            inPlace ? `be exactly \`${other}\` or not overlap it` : `not overlap \`${other}\``,
            "overlapping views",
          );
      }
    });
  }

  allocate(): void {
    for (const [name, spec] of this.lists.outputs)
      if (!spec.optional || this.asked.has(name))
        this.outputs[name] ??= this.encoder.empty(
          this.outputDtypes(spec)[0] as Dtype,
          this.expected(spec.shape) as number[],
        );
  }

  context(): OpContext {
    return this as unknown as OpContext;
  }
}

/**
 * Makes an op of its declaration: a function `(encoder, inputs, options) → outputs` that checks everything before it
 * encodes anything, in this order: kinds, relations of dimensions, options, tensors (device, dtype, shape, the op's own
 * `rules`), aliasing, the op's own `check`.
 * Outputs may be passed among the inputs by name; those that are not are allocated from the encoder's arena, optional
 * ones only when asked for with `true`. One output is returned as itself, several as an object.
 */
export function defineOp<
  const I extends Record<string, InputSpec>,
  const O extends Record<string, OutputSpec>,
  const P extends Record<string, ParamSpec>,
>(declaration: OpDeclaration<I, O, P>): Op<I, O, P> {
  const { descriptor, steps } = readDeclaration(declaration);
  const lists = listsOf(descriptor);
  const { relations, rules, check: ownCheck, encode } = steps;
  const { name } = descriptor;
  const single = lists.outputs.length === 1 ? lists.outputs[0]?.[0] : undefined;
  const call = (encoder: CommandEncoder, given: Record<string, unknown>, options: Record<string, unknown> = {}) => {
    const check = new Check(descriptor, lists, encoder);
    const context = check.context() as unknown as OpContext<I, O, P>;
    check.kinds(given, options);
    check.bind();
    relations?.(context);
    check.scalars();
    check.checkTensors();
    rules?.(context);
    check.aliasing();
    ownCheck?.(context);
    check.allocate();
    encode(context);
    return single === undefined ? check.outputs : check.outputs[single];
  };
  Object.defineProperty(call, "name", { value: name });
  Object.defineProperty(call, "op", { value: descriptor, enumerable: true });
  return Object.freeze(call) as unknown as Op<I, O, P>;
}

/** Refuses a mode an op knows but does not offer. */
export function unsupported(op: string, dtype: string, remedy?: string): MlxtsError {
  return new MlxtsError(
    "UnsupportedDtype",
    `${show(op)}: ${show(dtype)} is not supported${remedy ? ` — ${show(remedy)}` : ""}`,
    {
      op,
      dtype,
    },
  );
}
