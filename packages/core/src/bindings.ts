// The tensors that are bound to a dispatch: which are refused, and what memory they access.
import type { Buffer } from "./buffer.ts";
import type { DeviceCore } from "./device_core.ts";
import type { Dispatch } from "./dispatch.ts";
import { DTYPES } from "./dtype.ts";
import { disposedError, wrongValue } from "./errors.ts";
import type { Access } from "./kernel.ts";
import { type Accesses, overlaps, sameRange } from "./ranges.ts";
import { overrunText, SCRATCH_OVERRUN } from "./scratch.ts";
import type { Tensor } from "./tensor.ts";

const READS: ReadonlySet<Access> = new Set<Access>(["read", "read?", "readWrite", "readWrite?"]);
const WRITES: ReadonlySet<Access> = new Set<Access>(["write", "write?", "readWrite", "readWrite?"]);

/** A tensor of a dispatch, under the name of its buffer. */
interface Bound {
  name: string;
  tensor: Tensor;
  writes: boolean;
}

/** Whether a kernel writes to a buffer of that access. */
export const writesTo = (access: Access): boolean => WRITES.has(access);

/**
 * The memory that a dispatch reads and writes. `owns` tells which scratch that has no memory yet may be bound.
 * @throws RangeError of the op, or MlxtsError `Disposed`, for tensors that the kernel cannot be given
 */
export function accessesOf(dispatch: Dispatch, device: DeviceCore, owns?: (buffer: Buffer) => boolean): Accesses {
  const { kernel, op, variant, buffers, params } = dispatch;
  const accesses: Accesses = { label: `${op}/${kernel.name}_${variant}`, reads: [], writes: [] };
  accesses.fault = (code, words) =>
    code === SCRATCH_OVERRUN ? overrunText(kernel.scratch.cpu, words[0]) : kernel.faultTexts[code - 1]?.(words, params);
  const bound: Bound[] = [];
  for (const name of kernel.bufferNames) {
    const access = kernel.buffers[name] as Access;
    const tensor = buffers[name];
    if (tensor === undefined) continue;
    const writes = WRITES.has(access);
    checkTensor(dispatch, { name, tensor, writes }, device);
    if (tensor.buffer.planned && !owns?.(tensor.buffer))
      throw wrongValue(op, name, "have memory", "scratch of another recording", "make it with device.tensor");
    if (READS.has(access)) accesses.reads.push(tensor.range);
    if (writes) accesses.writes.push(tensor.range);
    bound.push({ name, tensor, writes });
  }
  checkOverlaps(dispatch, bound);
  return accesses;
}

function checkTensor({ kernel, op }: Dispatch, { name, tensor, writes }: Bound, device: DeviceCore): void {
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
  if (writes && tensor.buffer.readOnly) throw wrongValue(op, name, "be writable", "a read-only tensor");
}

const mayBeSame = ({ inPlace }: Dispatch["kernel"], output: Bound, input: Bound): boolean =>
  inPlace.some(([out, other]) => out === output.name && other === input.name);

/** A tensor that is written overlaps no other one, unless the kernel allows the two to be exactly the same view. */
function checkOverlaps({ kernel, op }: Dispatch, bound: readonly Bound[]): void {
  for (const a of bound) {
    if (!a.writes) continue;
    for (const b of bound) {
      if (a === b || !overlaps(a.tensor.range, b.tensor.range)) continue;
      const allowed = mayBeSame(kernel, a, b) || (b.writes && mayBeSame(kernel, b, a));
      if (!(allowed && sameRange(a.tensor.range, b.tensor.range)))
        throw wrongValue(op, a.name, `not overlap \`${b.name}\``, "overlapping views");
    }
  }
}
