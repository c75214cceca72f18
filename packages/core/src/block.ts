// What an encoder has recorded, without some of its tensors: other encoders append it with others in their places.
import type * as api from "./api.ts";
import { checkedAccesses } from "./bindings.ts";
import type { Buffer } from "./buffer.ts";
import type { DeviceCore } from "./device_core.ts";
import type { Dispatch } from "./dispatch.ts";
import type { Dtype } from "./dtype.ts";
import { disposedError, wrongKind, wrongValue } from "./errors.ts";
import { identify, printAsJson } from "./identity.ts";
import { type Access, writesTo } from "./kernel.ts";
import { type Accesses, overlaps } from "./ranges.ts";
import { isArray } from "./shape.ts";
import { sameBytes, Tensor, viewLike } from "./tensor.ts";

/** Ops choose kernels by how far a tensor begins from a multiple of so many bytes. */
const ALIGNMENT = 16;

/** What a tensor must be to take the place of one of the block's. */
interface Slot {
  readonly dtype: Dtype;
  readonly byteLength: number;
  /** How far it begins from a multiple of the alignment. */
  readonly phase: number;
  written: boolean;
}

/** A buffer of a dispatch that lies in a slot; in the one behind the last when it is scratch. */
interface Place {
  readonly name: string;
  readonly slot: number;
  /** The bytes of the slot's tensor that are bound; undefined: all. */
  readonly part: { readonly offset: number; readonly like: Pick<Tensor, "dtype" | "shape" | "size"> } | undefined;
}

interface BlockDispatch {
  /** Without the tensors of slots. */
  readonly dispatch: Dispatch;
  readonly pipeline: number;
  readonly places: readonly Place[];
}

/** A dispatch of a block with tensors in all places. */
interface BoundDispatch {
  readonly dispatch: Dispatch;
  readonly accesses: Accesses;
  readonly pipeline: number;
}

/** A copy of a list of tensors of the device that have memory. */
export function readTensors(op: string, tensors: unknown, device: DeviceCore, owns?: (b: Buffer) => boolean): Tensor[] {
  if (!isArray(tensors)) throw wrongKind(op, "tensors", "be an array of tensors", tensors);
  return Array.from(tensors as readonly unknown[], (tensor, at) => {
    const name = `tensors[${at}]`;
    if (!(tensor instanceof Tensor)) throw wrongKind(op, name, "be a Tensor", tensor);
    if (tensor.device !== device)
      throw wrongValue(op, name, "belong to the encoder's device", "a tensor of another device");
    if (tensor.disposed) throw disposedError(`tensor \`${name}\``);
    if (tensor.buffer.planned && !owns?.(tensor.buffer))
      throw wrongValue(op, name, "have memory", "scratch of a recording", "make it with device.tensor");
    return tensor;
  });
}

/** The class behind `Block`. */
export class Block implements api.Block {
  readonly device: DeviceCore;
  readonly #slots: readonly Slot[];
  readonly #scratchBytes: number;
  readonly #dispatches: readonly BlockDispatch[];
  /** Tensors that stay what they are, and those of them that dispatches write. */
  readonly #fixed: readonly Tensor[];
  readonly #fixedWritten: readonly Tensor[];

  static {
    identify("Block", Block, (value) => #slots in value);
    printAsJson(Block);
  }

  /** Of dispatches that have been checked; `scratch` holds what lies in no tensor of the program. */
  constructor(device: DeviceCore, dispatches: readonly Dispatch[], tensors: Tensor[], scratch: Tensor | undefined) {
    const slots = tensors.map(
      (tensor): Slot => ({
        dtype: tensor.dtype,
        byteLength: tensor.byteLength,
        phase: this.phaseOf(tensor, device),
        written: false,
      }),
    );
    assertOnce(tensors);
    const fixed = new Set<Tensor>();
    const fixedWritten = new Set<Tensor>();
    const withScratch = scratch ? [...tensors, scratch] : tensors;
    this.device = device;
    this.#slots = slots;
    this.#scratchBytes = scratch?.byteLength ?? 0;
    this.#dispatches = dispatches.map((dispatch) => {
      const { kernel, variant } = dispatch;
      const places: Place[] = [];
      const buffers = { ...dispatch.buffers };
      for (const name of kernel.bufferNames) {
        const tensor = buffers[name];
        if (!tensor) continue;
        const place = placeOf(name, tensor, withScratch);
        const written = writesTo(kernel.buffers[name] as Access);
        if (!place) {
          fixed.add(tensor);
          if (written) fixedWritten.add(tensor);
          continue;
        }
        places.push(place);
        buffers[name] = undefined;
        const slot = slots[place.slot];
        if (slot && written) slot.written = true;
      }
      const pipeline = device.library(kernel.library).pipelineOf(kernel, variant).id;
      return { dispatch: { ...dispatch, buffers }, pipeline, places };
    });
    this.#fixed = [...fixed];
    this.#fixedWritten = [...fixedWritten];
    this.assertApart("encoder.block", tensors);
    Object.freeze(this);
  }

  get dispatches(): number {
    return this.#dispatches.length;
  }

  get tensors(): number {
    return this.#slots.length;
  }

  private phaseOf({ byteOffset }: Tensor, { limits }: DeviceCore): number {
    return byteOffset % Math.max(ALIGNMENT, limits.bufferOffsetAlignment);
  }

  /** Optimizing has moved dispatches and left out others: that holds while what is written meets nothing else. */
  private assertApart(op: string, tensors: readonly Tensor[]): void {
    for (let i = 0; i < tensors.length; i++) {
      const { range } = tensors[i] as Tensor;
      const fail = (others: string): never => {
        throw wrongValue(op, `tensors[${i}]`, `not overlap ${others}`, "overlapping views");
      };
      if (!this.#slots[i]?.written) {
        for (const tensor of this.#fixedWritten)
          if (overlaps(range, tensor.range)) fail("other tensors that the block writes");
        continue;
      }
      for (let j = 0; j < tensors.length; j++)
        if (j !== i && overlaps(range, (tensors[j] as Tensor).range)) fail(`tensors[${j}], since it is written`);
      for (const tensor of this.#fixed)
        if (overlaps(range, tensor.range)) fail("other tensors that the block has, since it is written");
    }
  }

  /** The tensors as they take their places, checked. */
  read(op: string, given: unknown, owns?: (buffer: Buffer) => boolean): Tensor[] {
    const tensors = readTensors(op, given, this.device, owns);
    const slots = this.#slots;
    if (tensors.length !== slots.length)
      throw wrongValue(op, "tensors", `be the ${slots.length} of the block`, tensors.length);
    for (let at = 0; at < slots.length; at++) {
      const tensor = tensors[at] as Tensor;
      const { dtype, byteLength, phase, written } = slots[at] as Slot;
      const name = `tensors[${at}]`;
      if (tensor.dtype !== dtype || tensor.byteLength !== byteLength) {
        const rule = `keep dtype and bytes (${dtype}, ${byteLength})`;
        throw wrongValue(op, name, rule, `${tensor.dtype}, ${tensor.byteLength}`);
      }
      if (this.phaseOf(tensor, this.device) !== phase)
        throw wrongValue(op, name, `begin ${phase} bytes after an aligned one`, tensor.byteOffset);
      if (written && tensor.buffer.readOnly) throw wrongValue(op, name, "be writable", "a read-only tensor");
    }
    for (const tensor of this.#fixed) if (tensor.disposed) throw disposedError("tensor of the block");
    this.assertApart(op, tensors);
    return tensors;
  }

  /** The dispatches over tensors that `read` has checked. */
  bind(tensors: readonly Tensor[], empty: (bytes: number) => Tensor): BoundDispatch[] {
    const all = this.#scratchBytes > 0 ? [...tensors, empty(this.#scratchBytes)] : tensors;
    return this.#dispatches.map(({ dispatch: without, pipeline, places }) => {
      const buffers = { ...without.buffers };
      for (let i = 0; i < places.length; i++) {
        const { name, slot, part } = places[i] as Place;
        const tensor = all[slot] as Tensor;
        buffers[name] = part ? viewLike(tensor, part.offset, part.like) : tensor;
      }
      const dispatch = { ...without, buffers };
      return { dispatch, accesses: checkedAccesses(dispatch), pipeline };
    });
  }

  toJSON(): ReturnType<api.Block["toJSON"]> {
    const { device, tensors, dispatches } = this;
    return { type: "Block", device: device.kind, tensors, dispatches };
  }
}

/** A tensor that is listed twice would have two places, of which dispatches know one. */
function assertOnce(tensors: readonly Tensor[]): void {
  for (const [at, tensor] of tensors.entries()) {
    const first = tensors.findIndex((other) => sameBytes(other, tensor));
    if (first < at)
      throw wrongValue("encoder.block", `tensors[${at}]`, "be listed once", `the memory of tensors[${first}]`);
  }
}

/** The smallest of the tensors that holds another one, which must lie in none of them in part only. */
function placeOf(name: string, tensor: Tensor, slots: readonly Tensor[]): Place | undefined {
  const { buffer, dtype, shape, size, byteOffset: begin, byteLength } = tensor;
  const end = begin + byteLength;
  let found = -1;
  let meets = false;
  for (let at = 0; at < slots.length; at++) {
    const slot = slots[at] as Tensor;
    if (slot.buffer !== buffer || slot.byteOffset >= end || slot.byteOffset + slot.byteLength <= begin) continue;
    meets = true;
    const holds = slot.byteOffset <= begin && slot.byteOffset + slot.byteLength >= end;
    if (holds && (found < 0 || slot.byteLength < (slots[found] as Tensor).byteLength)) found = at;
  }
  if (found < 0) {
    if (!meets) return undefined;
    const value = `a part of \`${name}\`, of which a dispatch binds more`;
    throw wrongValue("encoder.block", "tensors", "hold all of what a dispatch binds of them", value);
  }
  const slot = slots[found] as Tensor;
  const isWhole = slot.dtype === dtype && slot.byteLength === byteLength;
  const part = isWhole ? undefined : { offset: begin - slot.byteOffset, like: { dtype, shape, size } };
  return { name, slot: found, part };
}
