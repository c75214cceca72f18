// The tensors that are bound to a dispatch: which are refused, and what memory they access.
import type { Buffer } from "./buffer.ts";
import type { DeviceCore } from "./device_core.ts";
import type { Dispatch } from "./dispatch.ts";
import { DTYPES } from "./dtype.ts";
import { disposedError, wrongValue } from "./errors.ts";
import { type Access, readsFrom, writesTo } from "./kernel.ts";
import type { Accesses } from "./ranges.ts";
import type { Tensor } from "./tensor.ts";

/**
 * The memory that a dispatch reads and writes. `owns` tells which scratch that has no memory yet may be bound.
 * @throws RangeError of the op, or MlxtsError `Disposed`, for tensors that the kernel cannot be given
 */
export function accessesOf(dispatch: Dispatch, device: DeviceCore, owns?: (buffer: Buffer) => boolean): Accesses {
  const { kernel, op, buffers } = dispatch;
  // Loops by index make no garbage, which those over a frozen array's iterator do.
  const names = kernel.bufferNames;
  for (let i = 0; i < names.length; i++) {
    const name = names[i] as string;
    const tensor = buffers[name];
    if (tensor === undefined) continue;
    checkTensor(dispatch, name, tensor, device);
    if (tensor.buffer.planned && !owns?.(tensor.buffer))
      throw wrongValue(op, name, "have memory", "scratch of another recording", "make it with device.tensor");
  }
  checkOverlaps(dispatch);
  return checkedAccesses(dispatch);
}

/** The same for a dispatch whose tensors have been checked. */
export function checkedAccesses({ kernel, label, fault, buffers }: Dispatch): Accesses {
  const names = kernel.bufferNames;
  let [reads, writes] = [0, 0];
  for (let i = 0; i < names.length; i++) {
    const name = names[i] as string;
    if (buffers[name] === undefined) continue;
    if (readsFrom(kernel.buffers[name] as Access)) reads++;
    if (writesTo(kernel.buffers[name] as Access)) writes++;
  }
  // Arrays that grow would take room for many more.
  const accesses: Accesses = { label, reads: new Array(reads), writes: new Array(writes), fault };
  for (let i = 0; i < names.length; i++) {
    const name = names[i] as string;
    const tensor = buffers[name];
    if (tensor === undefined) continue;
    if (readsFrom(kernel.buffers[name] as Access)) accesses.reads[accesses.reads.length - reads--] = tensor.range;
    if (writesTo(kernel.buffers[name] as Access)) accesses.writes[accesses.writes.length - writes--] = tensor.range;
  }
  return accesses;
}

function checkTensor({ kernel, op }: Dispatch, name: string, tensor: Tensor, device: DeviceCore): void {
  if (tensor.device !== device)
    throw wrongValue(op, name, "belong to the encoder's device", "a tensor of another device");
  if (tensor.disposed) throw disposedError(`tensor \`${name}\``);
  const { bufferOffsetAlignment } = device.limits;
  if (tensor.byteOffset % bufferOffsetAlignment !== 0) {
    const rule = `start at a multiple of ${bufferOffsetAlignment} bytes on this device`;
    throw wrongValue(op, name, rule, tensor.byteOffset);
  }
  const { bytesPerElement } = DTYPES[tensor.dtype];
  if (tensor.byteOffset % bytesPerElement !== 0 && !kernel.anyByte.includes(name))
    throw wrongValue(op, name, `start at a multiple of ${bytesPerElement} bytes`, tensor.byteOffset);
  if (tensor.buffer.readOnly && writesTo(kernel.buffers[name] as Access))
    throw wrongValue(op, name, "be writable", "a read-only tensor");
}

const mayBeSame = ({ inPlace }: Dispatch["kernel"], output: string, input: string): boolean =>
  inPlace.some(([out, other]) => out === output && other === input);

/** A tensor that is written overlaps no other one, unless the kernel allows the two to be exactly the same view. */
function checkOverlaps({ kernel, op, buffers }: Dispatch): void {
  const names = kernel.bufferNames;
  for (let i = 0; i < names.length; i++) {
    const a = names[i] as string;
    const output = buffers[a];
    if (!output || !writesTo(kernel.buffers[a] as Access)) continue;
    for (let j = 0; j < names.length; j++) {
      const b = names[j] as string;
      const other = buffers[b];
      if (!other || a === b || !tensorsOverlap(output, other)) continue;
      const allowed = mayBeSame(kernel, a, b) || (writesTo(kernel.buffers[b] as Access) && mayBeSame(kernel, b, a));
      if (!(allowed && tensorsAreSame(output, other)))
        throw wrongValue(op, a, `not overlap \`${b}\``, "overlapping views");
    }
  }
}

const addressOf = ({ buffer, byteOffset }: Tensor): number => buffer.address + byteOffset;

/** Whether two tensors share memory. It makes no ranges, as it is asked for each call of an op. */
export const tensorsOverlap = (a: Tensor, b: Tensor): boolean =>
  addressOf(a) < addressOf(b) + b.byteLength && addressOf(b) < addressOf(a) + a.byteLength;

/** Whether two tensors have the same memory. */
export const tensorsAreSame = (a: Tensor, b: Tensor): boolean =>
  addressOf(a) === addressOf(b) && a.byteLength === b.byteLength;

/** One tensor for each buffer and arena generation: while none of these is disposed, no bound tensor is. */
export function witnessesOf(dispatches: readonly Dispatch[]): Tensor[] {
  const witnesses: Tensor[] = [];
  const known = new Map<Buffer, Set<number | undefined>>();
  for (const { kernel, buffers } of dispatches) {
    const { bufferNames } = kernel;
    for (let i = 0; i < bufferNames.length; i++) {
      const tensor = buffers[bufferNames[i] as string];
      if (!tensor) continue;
      const generations = known.get(tensor.buffer);
      if (generations?.has(tensor.generation)) continue;
      if (generations) generations.add(tensor.generation);
      else known.set(tensor.buffer, new Set([tensor.generation]));
      witnesses.push(tensor);
    }
  }
  return witnesses;
}
