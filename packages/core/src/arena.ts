import type { Buffer } from "./buffer.ts";
import type { Device } from "./device.ts";
import type { Dtype } from "./dtype.ts";
import { MlxtsError, wrongValue } from "./errors.ts";
import { Tensor, tensorBytes } from "./tensor.ts";

/** Blocks start at multiples of this: one cache line pair, and every device's offset alignment. */
export const ARENA_ALIGNMENT = 256;

/** Bytes that a tensor takes in an arena. */
export function arenaBytes(dtype: Dtype, shape: readonly number[]): number {
  return Math.ceil(tensorBytes(dtype, shape, "arenaBytes") / ARENA_ALIGNMENT) * ARENA_ALIGNMENT;
}

/**
 * Scratch for one forward pass: blocks of one buffer handed out in order and taken back all at once by `reset()`.
 * Contents are undefined. Tensors from before a reset are dead; work in flight that still uses them is ordered before
 * later work by the device, so a reset never waits.
 */
export class Arena {
  readonly device: Device;
  readonly bytes: number;
  private readonly buffer: Buffer;
  private usedBytes = 0;
  private peak = 0;
  private resets = 0;

  /** @internal Use `device.arena`. */
  constructor(device: Device, bytes: number) {
    this.device = device;
    this.bytes = bytes;
    this.buffer = device.buffer(bytes);
    if (device.poison) device.submissions.fill(this.buffer, 0xff);
  }

  get used(): number {
    return this.usedBytes;
  }

  /** The largest `used` since the arena was made. */
  get peakBytes(): number {
    return this.peak;
  }

  /** @internal Counts resets; a tensor remembers the one it was made in. */
  get generation(): number {
    return this.resets;
  }

  get disposed(): boolean {
    return this.buffer.disposed;
  }

  alloc<D extends Dtype>(dtype: D, shape: readonly number[]): Tensor<D> {
    const bytes = arenaBytes(dtype, shape);
    if (this.disposed) throw new MlxtsError("Disposed", "the arena has been disposed", { what: "arena" });
    if (this.usedBytes + bytes > this.bytes)
      throw wrongValue(
        "arena.alloc",
        "shape",
        `fit the arena's ${this.bytes - this.usedBytes} free bytes`,
        `${bytes} bytes`,
        `make the arena at least ${this.usedBytes + bytes} bytes`,
      );
    const tensor = new Tensor(this.buffer, dtype, shape, {
      byteOffset: this.usedBytes,
      arena: { arena: this, generation: this.resets },
    });
    this.usedBytes += bytes;
    this.peak = Math.max(this.peak, this.usedBytes);
    return tensor;
  }

  /** Takes every block back. */
  reset(): void {
    this.usedBytes = 0;
    this.resets++;
    if (this.device.poison && !this.disposed) this.device.submissions.fill(this.buffer, 0xff);
  }

  dispose(): void {
    this.resets++;
    this.buffer.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
