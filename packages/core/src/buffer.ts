import type { Device } from "./device.ts";
import { disposedError, MlxtsError, show, wrongKind, wrongValue } from "./errors.ts";
import { identify, printAsJson } from "./identity.ts";
import { type NativeMemory, native } from "./native.ts";
import { checkOptionNames } from "./options.ts";
import type { Range } from "./ranges.ts";
import { abortable, checkSignal } from "./signal.ts";

const leaks = new FinalizationRegistry<string>((where) => {
  process.stderr.write(`mlxts leak: a buffer was collected that nobody had disposed, made\n${where}\n`);
});

/** At `MLXTS_DEBUG` 3: tells where a buffer was made that the garbage collector had to free. */
function reportLeak(buffer: Buffer): void {
  leaks.register(buffer, new Error().stack?.split("\n").slice(3).join("\n") ?? "", buffer);
}

export interface ReadOptions {
  /** Aborted: the read rejects with the signal's reason, and the work goes on. */
  signal?: AbortSignal | undefined;
}

/** Where a buffer's memory comes from, if it is not fresh. */
interface Origin {
  readOnly?: boolean;
  /** Over an array of the host. */
  wrapped?: boolean;
  /** The ArrayBuffer that is wrapped: when its bytes are taken away, the buffer is dead. */
  source?: ArrayBufferLike | undefined;
}

/** Node.js 20 lacks it. */
const { transfer } = ArrayBuffer.prototype as { transfer?: (this: ArrayBuffer, bytes: number) => ArrayBuffer };

/** A view's bytes. Each of its properties is read once: a subclass could tell another place each time. */
export function bytesOfView(op: string, argument: string, view: ArrayBufferView, source = view.buffer): Uint8Array {
  try {
    return new Uint8Array(source, view.byteOffset, view.byteLength);
  } catch {
    throw wrongValue(op, argument, "show bytes of its ArrayBuffer", "a view of bytes that are gone");
  }
}

/** Empties host views, which would otherwise go on showing the memory. */
function detach(borrowed: ArrayBuffer): void {
  try {
    // From Node.js 24 on, N-API ends the process when the array was marked as untransferable; `transfer` throws.
    if (transfer) transfer.call(borrowed, 0);
    else native().detach(borrowed);
  } catch {
    // The views stay, and keep the memory that they show.
  }
}

/**
 * Bytes a device can reach. Made by `device.buffer` (zero-filled), `device.bufferFrom` (a copy) or `device.wrap` (no copy).
 * Disposing is legal while work that uses the buffer is in flight: the handle is dead at once, the memory goes after its last use.
 */
export class Buffer {
  readonly device: Device;
  /** The length asked for; rounded-up bytes are never visible. */
  readonly byteLength: number;
  readonly readOnly: boolean;
  /** @internal The memory's address: hazards are tracked in memory, not in buffer objects. */
  readonly address: number;
  #memory: NativeMemory | undefined;
  /** Encoders that have recorded the buffer and not yet committed: its memory waits for them. */
  #recordings = 0;
  #orphan: NativeMemory | undefined;
  readonly #source: ArrayBufferLike | undefined;
  #borrowed: ArrayBuffer | undefined;

  static {
    identify("Buffer", Buffer, (value) => #memory in value);
    printAsJson(Buffer);
  }

  /** @internal Use the device's methods. */
  constructor(device: Device, memory: NativeMemory, bytes: number, { readOnly = false, wrapped, source }: Origin = {}) {
    this.device = device;
    this.#memory = memory;
    this.byteLength = bytes;
    this.readOnly = readOnly;
    this.#source = source;
    this.address = native().memoryAddress(memory);
    // Fresh memory may lie where a failed submission wrote once, or one that has just ended.
    if (!wrapped) device.submissions.welcome(this.range(0, bytes));
    if (device.debug >= 3) reportLeak(this);
    Object.freeze(this);
  }

  get disposed(): boolean {
    // An ArrayBuffer whose bytes were taken away has length 0.
    return this.#memory === undefined || this.device.disposed || this.#source?.byteLength === 0;
  }

  private assertLive(): void {
    if (this.device.disposed) throw disposedError("device");
    if (this.disposed) throw disposedError("buffer");
  }

  /** @internal */
  get handle(): NativeMemory {
    this.assertLive();
    return this.#memory as NativeMemory;
  }

  /** @internal */
  range(byteOffset: number, bytes: number): Range {
    return { begin: this.address + byteOffset, end: this.address + byteOffset + bytes };
  }

  /** A copy of the bytes, once the work that writes them has ended. */
  async read(byteOffset = 0, bytes?: number, options: ReadOptions = {}): Promise<ArrayBuffer> {
    const op = "buffer.read";
    checkOptionNames<ReadOptions>(op, options, { signal: true });
    const { signal } = options;
    const count = this.checkRange(op, byteOffset, bytes);
    checkSignal(op, signal);
    const { submissions, tally } = this.device;
    const range = this.range(byteOffset, count);
    this.assertLive();
    submissions.recorded.assertRun(op, "range", range);
    // Checked anew after each wait: a later commit may write the range too, and must not do so during the copy.
    for (let writer = submissions.lastWriter(range); writer; writer = submissions.lastWriter(range)) {
      tally.waits++;
      await abortable(
        writer.outcome().then(null, () => {}),
        signal,
      );
    }
    submissions.assertDefined(range);
    return this.copy(this.handle, byteOffset, count);
  }

  /** A copy of the bytes now; an error while work in flight writes them. */
  readSync(byteOffset = 0, bytes?: number): ArrayBuffer {
    const count = this.checkRange("buffer.readSync", byteOffset, bytes);
    this.device.submissions.recorded.assertRun("buffer.readSync", "range", this.range(byteOffset, count));
    this.device.submissions.assertNotWritten("buffer.readSync", this.range(byteOffset, count));
    return this.copy(this.handle, byteOffset, count);
  }

  private copy(memory: NativeMemory, byteOffset: number, bytes: number): ArrayBuffer {
    let out: ArrayBuffer;
    try {
      out = new ArrayBuffer(bytes);
    } catch (error) {
      throw new MlxtsError("BufferAllocation", `cannot allocate ${bytes} bytes for a copy`, { bytes }, error);
    }
    native().readMemory(memory, byteOffset, new Uint8Array(out));
    return out;
  }

  /** Copies `data` in; an error while work in flight reads or writes the range. */
  write(data: ArrayBufferView, byteOffset = 0): void {
    if (!ArrayBuffer.isView(data)) throw wrongKind("buffer.write", "data", "be a typed array or DataView", data);
    const view = bytesOfView("buffer.write", "data", data);
    const bytes = this.checkRange("buffer.write", byteOffset, view.byteLength);
    if (this.readOnly)
      throw wrongValue(
        "buffer.write",
        "buffer",
        "be writable",
        "a read-only buffer",
        "copy it with device.bufferFrom first",
      );
    const range = this.range(byteOffset, bytes);
    this.device.submissions.assertIdle("buffer.write", range);
    native().writeMemory(this.handle, byteOffset, view);
    this.device.submissions.forgetFailure(range);
    this.device.submissions.recorded.overwrite([range]);
  }

  /**
   * The memory itself as an ArrayBuffer, for hosts that fill or read it in place. It is emptied when the buffer is disposed
   * (one that `markAsUntransferable` has marked, from Node.js 24 on, cannot be emptied: it keeps the memory instead).
   * Another buffer that wraps it keeps the memory, too, and goes on working.
   */
  arrayBuffer(): ArrayBuffer {
    if (this.readOnly)
      throw wrongValue("buffer.arrayBuffer", "buffer", "be writable", "a read-only buffer", "use read() for a copy");
    const { handle } = this;
    // One that was transferred away shows nothing any more.
    if (!this.#borrowed?.byteLength) this.#borrowed = native().borrowMemory(handle);
    this.device.borrowed.add(this);
    return this.#borrowed;
  }

  /** How many bytes a call touches: those it names, or all from `byteOffset` on. */
  private checkRange(op: string, byteOffset: number, bytes?: number): number {
    if (!Number.isSafeInteger(byteOffset) || byteOffset < 0)
      throw wrongValue(op, "byteOffset", "be an integer ≥ 0", byteOffset);
    const count = bytes === undefined ? this.byteLength - byteOffset : bytes;
    if (!Number.isSafeInteger(count) || count < 0 || byteOffset + count > this.byteLength)
      throw wrongValue(
        op,
        "bytes",
        `stay within the buffer's ${this.byteLength} bytes`,
        `${byteOffset} + ${show(count)}`,
      );
    return count;
  }

  dispose(): void {
    if (this.#memory === undefined) return;
    if (this.#borrowed) detach(this.#borrowed);
    this.#borrowed = undefined;
    this.device.borrowed.delete(this);
    this.device.submissions.forgetFailure(this.range(0, this.byteLength));
    if (this.#recordings > 0) this.#orphan = this.#memory;
    else native().releaseMemory(this.#memory);
    this.#memory = undefined;
    leaks.unregister(this);
  }

  /** @internal A dispatch was recorded: the memory stays, even when the buffer is disposed, until `release`. */
  retain(): NativeMemory {
    const memory = this.handle;
    this.#recordings++;
    return memory;
  }

  /** @internal */
  release(): void {
    if (--this.#recordings > 0 || this.#orphan === undefined) return;
    native().releaseMemory(this.#orphan);
    this.#orphan = undefined;
  }

  /** What the buffer is and where it lies. */
  toJSON(): { type: "Buffer"; byteLength: number; readOnly: boolean; device: string; disposed: boolean } {
    const { byteLength: bytes, readOnly, device, disposed } = this;
    return { type: "Buffer", byteLength: bytes, readOnly, device: device.kind, disposed };
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
