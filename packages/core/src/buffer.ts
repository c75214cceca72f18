import type { Device } from "./device.ts";
import { disposedError, wrongValue } from "./errors.ts";
import { type NativeMemory, native } from "./native.ts";
import type { Range } from "./ranges.ts";

/**
 * Bytes a device can reach. Made by `device.buffer` (zero-filled), `device.bufferFrom` (a copy) or `device.wrap` (no copy).
 * Disposing is legal while work that uses the buffer is in flight: the handle is dead at once, the memory goes after its last use.
 */
export class Buffer {
  readonly device: Device;
  /** The length asked for; rounded-up bytes are never visible. */
  readonly bytes: number;
  readonly readOnly: boolean;
  /** @internal The memory's address: hazards are tracked in memory, not in buffer objects. */
  readonly address: number;
  private memory: NativeMemory | undefined;
  private borrowed: ArrayBuffer | undefined;

  /** @internal Use the device's methods. */
  constructor(device: Device, memory: NativeMemory, bytes: number, readOnly: boolean) {
    this.device = device;
    this.memory = memory;
    this.bytes = bytes;
    this.readOnly = readOnly;
    this.address = native().memoryAddress(memory);
  }

  get disposed(): boolean {
    return this.memory === undefined || this.device.disposed;
  }

  /** @internal */
  get handle(): NativeMemory {
    if (this.memory === undefined) throw disposedError("buffer");
    if (this.device.disposed) throw disposedError("device");
    return this.memory;
  }

  /** @internal */
  range(byteOffset: number, bytes: number): Range {
    return { begin: this.address + byteOffset, end: this.address + byteOffset + bytes };
  }

  /** A copy of the bytes, once the work that writes them has ended. */
  async read(byteOffset = 0, bytes = this.bytes - byteOffset): Promise<ArrayBuffer> {
    this.checkRange("buffer.read", byteOffset, bytes);
    const memory = this.handle;
    await this.device.submissions.writersOf(this.range(byteOffset, bytes));
    return native().readMemory(memory, byteOffset, bytes);
  }

  /** A copy of the bytes now; an error while work in flight writes them. */
  readSync(byteOffset = 0, bytes = this.bytes - byteOffset): ArrayBuffer {
    this.checkRange("buffer.readSync", byteOffset, bytes);
    this.device.submissions.assertNotWritten("buffer.readSync", this.range(byteOffset, bytes));
    return native().readMemory(this.handle, byteOffset, bytes);
  }

  /** Copies `data` in; an error while work in flight reads or writes the range. */
  write(data: ArrayBufferView, byteOffset = 0): void {
    this.checkRange("buffer.write", byteOffset, data.byteLength);
    if (this.readOnly)
      throw wrongValue(
        "buffer.write",
        "buffer",
        "be writable",
        "a read-only buffer",
        "copy it with device.bufferFrom first",
      );
    const range = this.range(byteOffset, data.byteLength);
    this.device.submissions.assertIdle("buffer.write", range);
    native().writeMemory(this.handle, byteOffset, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    this.device.submissions.forgetFailure(range);
  }

  /** The memory itself as an ArrayBuffer, for hosts that fill or read it in place. Detached when the buffer is disposed. */
  arrayBuffer(): ArrayBuffer {
    if (this.readOnly)
      throw wrongValue("buffer.arrayBuffer", "buffer", "be writable", "a read-only buffer", "use read() for a copy");
    this.borrowed ??= native().borrowMemory(this.handle);
    return this.borrowed;
  }

  private checkRange(op: string, byteOffset: number, bytes: number): void {
    if (!Number.isSafeInteger(byteOffset) || byteOffset < 0)
      throw wrongValue(op, "byteOffset", "be an integer ≥ 0", byteOffset);
    if (!Number.isSafeInteger(bytes) || bytes < 0 || byteOffset + bytes > this.bytes)
      throw wrongValue(op, "bytes", `stay within the buffer's ${this.bytes} bytes`, `${byteOffset} + ${bytes}`);
  }

  dispose(): void {
    if (this.memory === undefined) return;
    // Detaching leaves host views empty instead of pointing at freed memory.
    if (this.borrowed) structuredClone(null, { transfer: [this.borrowed] });
    this.borrowed = undefined;
    native().releaseMemory(this.memory);
    this.memory = undefined;
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
