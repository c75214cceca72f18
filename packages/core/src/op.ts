import type { Device } from "./api.ts";
import { tensorsAreSame, tensorsOverlap } from "./bindings.ts";
import { type Dtype, isDtype } from "./dtype.ts";
import { CommandEncoder } from "./encoder.ts";
import { disposedError, F32_RANGE, MlxtsError, show, wrongKind, wrongValue } from "./errors.ts";
import type { OpCall } from "./graph.ts";
import { readDeclaration } from "./op_declaration.ts";
import {
  type DescriptorLists,
  firstForm,
  formFor,
  listsOf,
  numberFits,
  paramText,
  wrongAsF32,
} from "./op_descriptor.ts";
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
} from "./op_types.ts";
import { checkOptionNames, namesOf } from "./options.ts";
import { Tensor } from "./tensor.ts";

const NONE: readonly string[] = [];

/** One call of an op: its arguments, checked step by step, and what the op's own functions see of them. */
class Check {
  readonly dims: Record<string, number> = {};
  lead: readonly number[] = [];
  readonly tensors: Record<string, Tensor> = {};
  readonly options: Record<string, string | number | boolean | undefined> = {};
  readonly outputs: Record<string, Tensor | undefined> = {};
  /** The given inputs, each value read once. */
  readonly inputs: Record<string, unknown> = {};
  readonly encoder: CommandEncoder;
  readonly descriptor: OpDescriptor;
  private readonly lists: DescriptorLists;
  /** Outputs that were asked for with `true`. */
  private asked: readonly string[] = NONE;
  /** Inputs that were given as records. */
  private copied: readonly string[] = NONE;
  private leadBound = false;

  constructor(descriptor: OpDescriptor, lists: DescriptorLists, encoder: CommandEncoder) {
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
    let rows = 1;
    for (const dim of this.lead) rows *= dim;
    return rows;
  }
  readonly fail = (argument: string, rule: string, value: unknown, remedy?: string): never => {
    throw wrongValue(this.op, argument, rule, value, remedy);
  };

  /** Reads the arguments, each once; refuses missing and unknown ones, and those of a wrong kind. */
  readArguments(given: Record<string, unknown>, options: Record<string, unknown>): void {
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
    for (const record of lists.records) {
      const { tensor, optional } = descriptor.inputs[record] as RecordSpec;
      const value = inputs[record];
      if ((tensor && value instanceof Tensor) || (optional && value === undefined)) continue;
      inputs[record] = this.copyRecord(record, value);
      this.copied = [...this.copied, record];
    }
    for (const { name, spec, record, part } of lists.inputs) {
      if (!this.counts(name, record)) continue;
      const value = part === undefined ? inputs[name] : this.partOf(record, part);
      if (value === undefined && spec.optional) continue;
      if (!(value instanceof Tensor)) throw wrongKind(op, name, "be a Tensor", value);
      this.tensors[name] = value;
    }
    for (const { name } of lists.outputs) {
      const value = inputs[name];
      if (value === true) this.asked = [...this.asked, name];
      else if (value !== undefined && !(value instanceof Tensor))
        throw wrongKind(op, name, "be a Tensor or true", value);
      else this.outputs[name] = value;
    }
    for (const { name, spec, record, part } of lists.params) {
      if (!this.counts(name, record)) continue;
      const given = part === undefined ? options[name] : this.partOf(record, part);
      const value = given ?? spec.default;
      if (value === undefined && spec.optional) continue;
      if (spec.kind === "choice") {
        if (value === undefined) throw wrongKind(op, name, `be one of ${spec.values.join(", ")}`, value);
      } else if (typeof value !== spec.kind) throw wrongKind(op, name, `be a ${spec.kind}`, value);
      this.options[name] = value as string | number | boolean;
    }
  }

  /** Whether a name counts: of an input that was given as a record its parts do, of others the input itself. */
  private counts(name: string, record: string | undefined): boolean {
    return record === undefined ? !this.copied.includes(name) : this.copied.includes(record);
  }

  private partOf(record: string | undefined, part: string): unknown {
    return (this.inputs[record as string] as Record<string, unknown>)[part];
  }

  /** A copy of a record: its tensors and attributes. */
  private copyRecord(name: string, given: unknown): Record<string, unknown> {
    const { tensors, attributes, tensor } = this.descriptor.inputs[name] as RecordSpec;
    namesOf(
      this.op,
      name,
      given,
      `be ${tensor ? "a Tensor or " : ""}an object with ${Object.keys(tensors).join(", ")}`,
    );
    const copy: Record<string, unknown> = {};
    for (const field of [...Object.keys(tensors), ...Object.keys(attributes)])
      copy[field] = (given as Record<string, unknown>)[field];
    return copy;
  }

  /** Gives each letter its value, from the first tensor in signature order whose rank fits. */
  bindDimensions(): void {
    for (const { name, spec } of this.lists.inputs) this.bindTensor(this.tensors[name], spec.shape);
    for (const { name, spec } of this.lists.outputs) this.bindTensor(this.outputs[name], spec.shape);
  }

  private bindTensor(tensor: Tensor | undefined, rule: ShapeRule): void {
    const form = tensor && typeof rule === "string" && formFor(rule, tensor.shape.length);
    if (!form) return;
    const { open, dims } = form;
    const extra = tensor.shape.length - dims.length;
    if (open && !this.leadBound) {
      this.lead = tensor.shape.slice(0, extra);
      this.leadBound = true;
    }
    for (let i = 0; i < dims.length; i++) {
      const letter = dims[i] as string | number;
      if (typeof letter === "string") this.dims[letter] ??= tensor.shape[extra + i] as number;
    }
  }

  checkParams(): void {
    for (const { name, spec } of this.lists.params) {
      const value = this.options[name];
      if (value === undefined || spec.kind === "boolean") continue;
      const fits = spec.kind === "choice" ? spec.values.includes(value as never) : numberFits(spec, value as number);
      if (!fits) this.fail(name, `be ${paramText(spec)}`, value);
      const wrong = spec.kind === "number" ? wrongAsF32(spec, value as number) : undefined;
      if (wrong !== undefined) this.fail(name, `be ${paramText(spec)} as f32`, value, F32_RANGE);
    }
  }

  /** The shape that a rule asks for; a letter stands where no tensor has given a value. */
  expected(rule: ShapeRule, given: readonly number[] = []): readonly (number | string)[] {
    if (typeof rule !== "string") return rule.of(this.context(), given);
    const { open, dims } = formFor(rule, given.length) ?? firstForm(rule);
    const shape: (number | string)[] = open ? (this.leadBound ? [...this.lead] : ["..."]) : [];
    for (const dim of dims) shape.push(typeof dim === "string" ? (this.dims[dim] ?? dim) : dim);
    return shape;
  }

  private tensorNamed(name: string): Tensor | undefined {
    return this.tensors[name] ?? this.outputs[name];
  }

  dtypesOf(rules: readonly DtypeRule[]): Dtype[] {
    const dtypes: Dtype[] = [];
    for (let i = 0; i < rules.length; i++) {
      const rule = rules[i] as DtypeRule;
      const dtype = isDtype(rule) ? rule : this.tensorNamed(rule.slice(1))?.dtype;
      if (dtype && !dtypes.includes(dtype)) dtypes.push(dtype);
    }
    return dtypes;
  }

  outputDtypes(spec: OutputSpec): Dtype[] {
    return typeof spec.dtype === "function" ? [spec.dtype(this.context())] : this.dtypesOf(spec.dtype);
  }

  /** Whether one of the rules names a dtype. */
  private allows(rules: readonly DtypeRule[], dtype: Dtype): boolean {
    for (let i = 0; i < rules.length; i++) if (rules[i] === dtype) return true;
    return this.dtypesOf(rules).includes(dtype);
  }

  /** Whether a shape is the one that a rule asks for. */
  private isExpected(rule: ShapeRule, shape: readonly number[]): boolean {
    const form = typeof rule === "string" ? formFor(rule, shape.length) : undefined;
    if (!form) {
      const expected = this.expected(rule, shape);
      return expected.length === shape.length && expected.every((dim, i) => dim === shape[i]);
    }
    const { open, dims } = form;
    const extra = shape.length - dims.length;
    if (open && !(this.leadBound && extra === this.lead.length)) return false;
    for (let i = 0; i < extra; i++) if (shape[i] !== this.lead[i]) return false;
    for (let i = 0; i < dims.length; i++) {
      const dim = dims[i] as string | number;
      if (shape[extra + i] !== (typeof dim === "string" ? this.dims[dim] : dim)) return false;
    }
    return true;
  }

  private checkTensor(name: string, tensor: Tensor, dtypes: readonly DtypeRule[], shape: ShapeRule): void {
    if (tensor.device !== this.device) this.fail(name, "belong to the encoder's device", "a tensor of another device");
    if (tensor.disposed) throw disposedError(`tensor \`${name}\``);
    if (!this.allows(dtypes, tensor.dtype))
      this.fail(name, `have dtype ${this.dtypesOf(dtypes).join(" or ")}`, tensor.dtype);
    if (!this.isExpected(shape, tensor.shape))
      this.fail(name, `have shape [${this.expected(shape, tensor.shape).join(", ")}]`, tensor.shape);
  }

  checkTensors(): void {
    for (const { name, spec } of this.lists.inputs) {
      const tensor = this.tensors[name];
      if (tensor) this.checkTensor(name, tensor, spec.dtype, spec.shape);
    }
    for (const { name, spec } of this.lists.outputs) {
      const tensor = this.outputs[name];
      for (const need of tensor || this.asked.includes(name) ? (spec.needs ?? []) : [])
        if ((this.options[need] ?? this.inputs[need]) === undefined)
          this.fail(need, `be given with \`${name}\``, undefined);
      if (tensor) this.checkTensor(name, tensor, this.outputDtypes(spec), spec.shape);
    }
  }

  checkAliasing(): void {
    const given = Object.keys(this.outputs).filter((name) => this.outputs[name] !== undefined);
    const inputs = given.length > 0 ? Object.keys(this.tensors) : NONE;
    given.forEach((name, i) => {
      const tensor = this.outputs[name] as Tensor;
      if (tensor.buffer.readOnly) this.fail(name, "be writable", "a read-only tensor");
      for (const other of given.slice(0, i))
        if (tensorsOverlap(tensor, this.outputs[other] as Tensor))
          this.fail(name, `not overlap \`${other}\``, "overlapping views");
      for (const other of inputs) {
        const input = this.tensors[other] as Tensor;
        if (!tensorsOverlap(tensor, input)) continue;
        const inPlace = this.descriptor.outputs[name]?.inPlace?.includes(other) ?? false;
        if (!(inPlace && tensorsAreSame(tensor, input)))
          this.fail(
            name,
            inPlace ? `be exactly \`${other}\` or not overlap it` : `not overlap \`${other}\``,
            "overlapping views",
          );
      }
    });
  }

  allocate(): void {
    for (const { name, spec } of this.lists.outputs)
      if (!spec.optional || this.asked.includes(name))
        this.outputs[name] ??= this.encoder.empty(
          this.outputDtypes(spec)[0] as Dtype,
          this.expected(spec.shape) as number[],
        );
  }

  /** What a recording remembers of the call: copies, since the op's own functions may change what they were given. */
  call(): OpCall {
    const { op, descriptor } = this;
    const [tensors, inputs, outputs, options] = [this.tensors, this.inputs, this.outputs, this.options];
    return {
      op,
      descriptor,
      tensors: { ...tensors },
      inputs: { ...inputs },
      outputs: { ...outputs },
      options: { ...options },
    };
  }

  context(): OpContext {
    return this as unknown as OpContext;
  }
}

/** Whether a value is what an op's own functions get. */
export function isOpContext(value: unknown): boolean {
  try {
    return value instanceof Check;
  } catch {
    return false; // a revoked Proxy
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
  const single = lists.outputs.length === 1 ? lists.outputs[0]?.name : undefined;
  const call = (encoder: CommandEncoder, given: Record<string, unknown>, options: Record<string, unknown> = {}) => {
    const check = new Check(descriptor, lists, encoder);
    const context = check.context() as unknown as OpContext<I, O, P>;
    check.readArguments(given, options);
    check.bindDimensions();
    relations?.(context);
    check.checkParams();
    check.checkTensors();
    rules?.(context);
    check.checkAliasing();
    ownCheck?.(context);
    check.allocate();
    if (encoder.plan) encoder.plan.during(check.call(), () => encode(context));
    else encode(context);
    return single === undefined ? check.outputs : check.outputs[single];
  };
  Object.defineProperty(call, "name", { value: name });
  Object.defineProperty(call, "op", { value: descriptor, enumerable: true });
  return Object.freeze(call) as unknown as Op<I, O, P>;
}

/** The error of a dtype or mode that an op knows and does not offer. */
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
