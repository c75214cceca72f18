// Calls of ops that are checked once and encoded many times, each time with other tensors of the same dtypes and shapes.
import type * as api from "./api.ts";
import { tensorsAreSame, tensorsOverlap } from "./bindings.ts";
import type { DeviceCore } from "./device_core.ts";
import type { Dispatch } from "./dispatch.ts";
import type { Dtype } from "./dtype.ts";
import { CommandEncoder } from "./encoder.ts";
import { disposedError, wrongKind, wrongValue } from "./errors.ts";
import type { GraphNode, OpCall } from "./graph.ts";
import { identify, printAsJson } from "./identity.ts";
import { namesOf } from "./options.ts";
import type { Plan } from "./plan.ts";
import { tensorBytes } from "./shape.ts";
import { Tensor } from "./tensor.ts";

const OP = "bake";

/** A tensor that is not there yet. */
interface TensorForm {
  readonly dtype: Dtype;
  readonly shape: readonly number[];
}

/** Where a buffer of a dispatch comes from: a tensor of the call, or scratch that is made at each encoding. */
interface Binding {
  readonly name: string;
  /** A number of `tensors`, or of `scratch` behind these. */
  readonly slot: number;
  /** The bytes of it that are bound; undefined: all. */
  readonly part: { readonly byteOffset: number; readonly form: TensorForm } | undefined;
}

/** Two tensors of the call that must not overlap, of which the first is written. */
interface Apart {
  readonly output: number;
  readonly other: number;
  /** Whether they may be exactly the same. */
  readonly inPlace: boolean;
}

interface BakedDispatch {
  readonly dispatch: Dispatch;
  readonly bindings: readonly Binding[];
}

const isForm = (value: unknown): value is TensorForm =>
  value !== null && typeof value === "object" && "dtype" in value && "shape" in value;

/** Replaces the forms of tensors in the inputs of an op, those in records too. */
function replaceForms(
  inputs: unknown,
  replace: (form: TensorForm) => Tensor,
  inRecord = false,
): Record<string, unknown> {
  const copy: Record<string, unknown> = {};
  for (const name of namesOf(OP, "inputs", inputs)) {
    const value = (inputs as Record<string, unknown>)[name];
    if (isForm(value)) copy[name] = replace(value);
    else if (value !== null && typeof value === "object" && !(value instanceof Tensor || inRecord))
      copy[name] = replaceForms(value, replace, true);
    else copy[name] = value;
  }
  return copy;
}

/** The part of a tensor that a dispatch binds; undefined where it binds all of it. */
function partOf(bound: Tensor, whole: Tensor): Binding["part"] {
  if (bound.byteOffset === 0 && bound.byteLength === whole.byteLength) return undefined;
  return { byteOffset: bound.byteOffset, form: { dtype: bound.dtype, shape: bound.shape } };
}

/** A value of an object; undefined where the object refuses to tell. */
function readValue(values: Readonly<Record<string, unknown>>, name: string): unknown {
  try {
    return values[name];
  } catch {
    return undefined;
  }
}

function viewOf(tensor: Tensor, { byteOffset, form: { dtype, shape } }: NonNullable<Binding["part"]>): Tensor {
  const bytes = tensor
    .reshape([tensor.size])
    .cast("u8")
    .view(byteOffset, [tensorBytes(dtype, shape)]);
  return bytes.cast(dtype).reshape(shape);
}

/** The class behind `OpRecord`. */
export class OpRecord implements api.OpRecord {
  readonly device: DeviceCore;
  /** The op's name. */
  readonly op: string;
  /** Names of the tensors that `encode` takes: inputs, those of records one by one, then outputs. */
  readonly names: readonly string[];
  readonly #forms: readonly Tensor[];
  readonly #scratch: readonly Tensor[];
  readonly #dispatches: readonly BakedDispatch[];
  readonly #call: OpCall;
  readonly #apart: readonly Apart[];

  static {
    identify("OpRecord", OpRecord, (value) => #forms in value);
    printAsJson(OpRecord);
  }

  /** Use `bake`. */
  constructor(device: DeviceCore, { outputs }: api.BakedOp["op"], call: OpCall, nodes: readonly GraphNode[]) {
    const tensors = { ...call.tensors, ...call.outputs };
    const names = Object.keys(tensors).filter((name) => tensors[name]);
    const forms = names.map((name) => tensors[name] as Tensor);
    const scratch: Tensor[] = [];
    const slotOf = (tensor: Tensor): number => {
      const known = forms.findIndex(({ buffer }) => buffer === tensor.buffer);
      if (known >= 0) return known;
      const at = scratch.findIndex(({ buffer }) => buffer === tensor.buffer);
      if (at >= 0) return forms.length + at;
      const { buffer } = tensor;
      return forms.length + scratch.push(new Tensor(buffer, "u8", [buffer.byteLength])) - 1;
    };
    this.device = device;
    this.op = call.op;
    this.names = Object.freeze(names);
    this.#call = call;
    this.#forms = forms;
    this.#dispatches = nodes.map(({ dispatch }) => ({
      dispatch,
      bindings: Object.entries(dispatch.buffers).flatMap(([name, tensor]): Binding[] => {
        if (!tensor) return [];
        const slot = slotOf(tensor);
        const whole = forms[slot] ?? (scratch[slot - forms.length] as Tensor);
        return [{ name, slot, part: partOf(tensor, whole) }];
      }),
    }));
    this.#scratch = scratch;
    this.#apart = names.flatMap((name, output) =>
      call.outputs[name] === undefined
        ? []
        : names.flatMap((other, at): Apart[] =>
            at === output ? [] : [{ output, other: at, inPlace: outputs[name]?.inPlace?.includes(other) ?? false }],
          ),
    );
    Object.freeze(this);
  }

  encode(encoder: api.CommandEncoder, tensors: Readonly<Record<string, api.Tensor>>): void {
    const { op, names } = this;
    if (!(encoder instanceof CommandEncoder)) throw wrongKind(op, "encoder", "be a CommandEncoder", encoder);
    if (this.device.disposed) throw disposedError("device");
    if (encoder.device !== this.device)
      throw wrongValue(op, "encoder", "belong to the record's device", "an encoder of another device");
    if (tensors === null || typeof tensors !== "object") throw wrongKind(op, "tensors", "be an object", tensors);
    const slots = new Array<Tensor>(names.length + this.#scratch.length);
    for (let slot = 0; slot < names.length; slot++) slots[slot] = this.tensorFor(slot, tensors);
    // Reading the tensors may run the program's code, which may end the encoder: so this comes after.
    encoder.assertRecording("dispatch");
    for (const pair of this.#apart) this.checkApart(pair, slots);
    for (let at = 0; at < this.#scratch.length; at++)
      slots[names.length + at] = encoder.empty("u8", [(this.#scratch[at] as Tensor).byteLength]);
    if (encoder.plan) encoder.plan.during(this.callWith(slots), () => this.record(encoder, slots));
    else this.record(encoder, slots);
  }

  private tensorFor(slot: number, tensors: Readonly<Record<string, api.Tensor>>): Tensor {
    const name = this.names[slot] as string;
    const tensor = readValue(tensors, name);
    const form = this.#forms[slot] as Tensor;
    if (!(tensor instanceof Tensor)) throw wrongKind(this.op, name, "be a Tensor", tensor);
    if (tensor.dtype !== form.dtype) throw wrongValue(this.op, name, `have dtype ${form.dtype}`, tensor.dtype);
    if (tensor.byteLength !== form.byteLength)
      throw wrongValue(this.op, name, `have ${form.byteLength} bytes`, tensor.byteLength);
    if (tensor.device !== this.device)
      throw wrongValue(this.op, name, "belong to the encoder's device", "a tensor of another device");
    if (tensor.disposed) throw disposedError(`tensor \`${name}\``);
    const { bufferOffsetAlignment } = this.device.limits;
    if (tensor.byteOffset % bufferOffsetAlignment !== 0) {
      const rule = `start at a multiple of ${bufferOffsetAlignment} bytes on this device`;
      throw wrongValue(this.op, name, rule, tensor.byteOffset);
    }
    return tensor;
  }

  private checkApart({ output, other, inPlace }: Apart, slots: readonly Tensor[]): void {
    const tensor = slots[output] as Tensor;
    const second = slots[other] as Tensor;
    const name = this.names[output] as string;
    const otherName = this.names[other] as string;
    if (tensor.buffer.readOnly) throw wrongValue(this.op, name, "be writable", "a read-only tensor");
    if (!tensorsOverlap(tensor, second) || (inPlace && tensorsAreSame(tensor, second))) return;
    const rule = inPlace ? `be exactly \`${otherName}\` or not overlap it` : `not overlap \`${otherName}\``;
    throw wrongValue(this.op, name, rule, "overlapping views");
  }

  private record(encoder: CommandEncoder, slots: readonly Tensor[]): void {
    for (const { dispatch, bindings } of this.#dispatches) {
      const buffers: Record<string, Tensor | undefined> = {};
      for (const { name, slot, part } of bindings) {
        const tensor = slots[slot] as Tensor;
        buffers[name] = part ? viewOf(tensor, part) : tensor;
      }
      encoder.record({ ...dispatch, buffers });
    }
  }

  toJSON(): ReturnType<api.OpRecord["toJSON"]> {
    return { type: "OpRecord", op: this.op, names: this.names, dispatches: this.#dispatches.length };
  }

  /** The call as rules of fusion see it. */
  private callWith(slots: readonly Tensor[]): OpCall {
    const { op, descriptor, tensors, inputs, outputs, options } = this.#call;
    const at = (form: Tensor): Tensor => {
      const slot = this.#forms.indexOf(form);
      const tensor = slots[slot] as Tensor;
      return tensor.shape.join() === form.shape.join() ? tensor : tensor.reshape(form.shape);
    };
    const mapped = <T>(all: Readonly<Record<string, T>>) =>
      Object.fromEntries(Object.entries(all).map(([name, form]) => [name, form instanceof Tensor ? at(form) : form]));
    const whole = Object.fromEntries(
      Object.entries(inputs).map(([name, value]) => [
        name,
        value instanceof Tensor
          ? at(value)
          : value !== null && typeof value === "object"
            ? mapped({ ...value })
            : value,
      ]),
    );
    return {
      op,
      descriptor,
      tensors: mapped(tensors) as OpCall["tensors"],
      inputs: whole,
      outputs: mapped(outputs) as OpCall["outputs"],
      options,
    };
  }
}

/**
 * The record of a call whose tensors are not there yet: `inputs` has `{ dtype, shape }` in their places.
 * @throws TypeError or RangeError as the call would
 */
export function bake(device: DeviceCore, op: api.BakedOp, inputs: object, options: object): OpRecord {
  if (typeof op !== "function" || !namesOf(OP, "op", op.op).includes("inputs"))
    throw wrongKind(OP, "op", "be an op", op);
  const encoder = new CommandEncoder(device, {}, { fuse: [], reorder: false, reuseScratch: false });
  try {
    const forms = replaceForms(inputs, ({ dtype, shape }) => encoder.empty(dtype, shape));
    op(encoder as never, forms as never, options as never);
    const { latestCall, nodes } = encoder.plan as Plan;
    return new OpRecord(device, op.op, latestCall, nodes);
  } finally {
    encoder.dispose();
  }
}
