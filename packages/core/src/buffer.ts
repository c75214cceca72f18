import type * as api from "./api.ts";
import { bytesOfView, detach } from "./array_buffers.ts";
import type { DeviceCore } from "./device_core.ts";
import { disposedError, MlxtsError, show, wrongKind, wrongValue } from "./errors.ts";
import { identify, printAsJson } from "./identity.ts";
import { deviceFailure, type NativeMemory, native } from "./native.ts";
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

interface BufferOptions {
  readOnly?: boolean;
  /** The memory is an array's, not fresh memory of the device. */
  wrapped?: boolean;
  /** The ArrayBuffer that is wrapped: when its bytes are taken away, the buffer counts as disposed. */
  source?: ArrayBufferLike | undefined;
}

/** Where scratch of a recording seems to lie before the recording ends, for the search for hazards. */
interface Planned {
  readonly address: number;
}

/** The class behind `Buffer`. */
export class Buffer implements api.Buffer {
  readonly device: DeviceCore;
  readonly byteLength: number;
  readonly readOnly: boolean;
  #memory: NativeMemory | undefined;
  #address: number;
  /** Whether it is scratch of a recording that has not ended: it has no memory yet. */
  #planned: boolean;
  /** How many encoders have recorded the buffer and not yet committed: until they have, its memory is kept. */
  #recordings = 0;
  /** The memory of a disposed buffer, kept for those encoders. */
  #kept: NativeMemory | undefined;
  readonly #source: ArrayBufferLike | undefined;
  #borrowed: ArrayBuffer | undefined;

  static {
    identify("Buffer", Buffer, (value) => #memory in value);
    printAsJson(Buffer);
  }

  constructor(device: DeviceCore, memory: NativeMemory | Planned, byteLength: number, options: BufferOptions = {}) {
    const { readOnly = false, wrapped, source } = options;
    this.device = device;
    this.byteLength = byteLength;
    this.readOnly = readOnly;
    this.#source = source;
    this.#planned = "address" in memory;
    if ("address" in memory) this.#address = memory.address;
    else {
      this.#memory = memory;
      this.#address = native().memoryAddress(memory);
    }
    if (!wrapped && !this.#planned) device.submissions.startFresh(this.range(0, byteLength));
    if (device.debug >= 3 && !this.#planned) reportLeak(this);
    Object.freeze(this);
  }

  /** The memory's address: hazards are found between addresses, not between buffer objects. */
  get address(): number {
    return this.#address;
  }

  get planned(): boolean {
    return this.#planned;
  }

  /** Gives scratch of a recording its memory. */
  place(): void {
    if (!this.#planned) throw disposedError("buffer");
    const memory = this.device.allocate(this.byteLength);
    this.#planned = false;
    this.#memory = memory;
    this.#address = native().memoryAddress(memory);
    this.device.submissions.startFresh(this.range(0, this.byteLength));
    if (this.device.debug >= 3) reportLeak(this);
  }

  get disposed(): boolean {
    // An ArrayBuffer whose bytes were taken away has length 0.
    return (this.#memory === undefined && !this.#planned) || this.device.disposed || this.#source?.byteLength === 0;
  }

  private assertLive(): void {
    if (this.device.disposed) throw disposedError("device");
    if (this.disposed) throw disposedError("buffer");
  }

  get handle(): NativeMemory {
    this.assertLive();
    if (this.#planned)
      throw wrongValue(
        "buffer",
        "memory",
        "be there",
        "scratch of a recording, which has none before the recording ends",
        "use a tensor made with device.tensor",
      );
    return this.#memory as NativeMemory;
  }

  /** The addresses of a part of the buffer. */
  range(byteOffset: number, byteLength: number): Range {
    return { begin: this.address + byteOffset, end: this.address + byteOffset + byteLength };
  }

  async read(byteOffset = 0, byteLength?: number, options: api.ReadOptions = {}): Promise<ArrayBuffer> {
    const op = "buffer.read";
    checkOptionNames<api.ReadOptions>(op, options, { signal: true });
    const { signal } = options;
    const count = this.checkRange(op, byteOffset, byteLength);
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
    return this.copy(op, byteOffset, count);
  }

  readSync(byteOffset = 0, byteLength?: number): ArrayBuffer {
    const op = "buffer.readSync";
    const { submissions } = this.device;
    const count = this.checkRange(op, byteOffset, byteLength);
    const range = this.range(byteOffset, count);
    submissions.recorded.assertRun(op, "range", range);
    submissions.assertNotWritten(op, range);
    return this.copy(op, byteOffset, count);
  }

  private copy(op: string, byteOffset: number, byteLength: number): ArrayBuffer {
    const memory = this.handle;
    let out: ArrayBuffer;
    try {
      out = new ArrayBuffer(byteLength);
    } catch (error) {
      const message = `cannot allocate ${byteLength} bytes for a copy`;
      throw new MlxtsError("BufferAllocation", message, { bytes: byteLength }, error);
    }
    try {
      native().readMemory(memory, byteOffset, new Uint8Array(out));
    } catch (error) {
      throw deviceFailure(op, error);
    }
    return out;
  }

  write(data: ArrayBufferView, byteOffset = 0): void {
    const op = "buffer.write";
    if (!ArrayBuffer.isView(data)) throw wrongKind(op, "data", "be a typed array or DataView", data);
    const view = bytesOfView(op, "data", data);
    const range = this.range(byteOffset, this.checkRange(op, byteOffset, view.byteLength));
    if (this.readOnly)
      throw wrongValue(op, "buffer", "be writable", "a read-only buffer", "copy it with device.bufferFrom first");
    const { submissions } = this.device;
    submissions.assertIdle(op, range);
    const memory = this.handle;
    try {
      native().writeMemory(memory, byteOffset, view);
    } catch (error) {
      throw deviceFailure(op, error);
    }
    submissions.forgetFailure(range);
    submissions.recorded.overwrite([range]);
  }

  arrayBuffer(): ArrayBuffer {
    if (this.readOnly)
      throw wrongValue("buffer.arrayBuffer", "buffer", "be writable", "a read-only buffer", "use read() for a copy");
    if (!this.device.unifiedMemory)
      throw wrongValue(
        "buffer.arrayBuffer",
        "buffer",
        "lie in memory that the host shares (device.unifiedMemory)",
        `memory of a ${this.device.kind} device`,
        "use read() and write()",
      );
    const { handle } = this;
    // An ArrayBuffer that was transferred away has length 0 and shows nothing any more.
    if (!this.#borrowed?.byteLength) this.#borrowed = native().borrowMemory(handle);
    this.device.borrowed.add(this);
    return this.#borrowed;
  }

  /** How many bytes a call touches: those it names, or all from `byteOffset` on. */
  private checkRange(op: string, byteOffset: number, byteLength?: number): number {
    if (!Number.isSafeInteger(byteOffset) || byteOffset < 0)
      throw wrongValue(op, "byteOffset", "be an integer ≥ 0", byteOffset);
    const count = byteLength === undefined ? this.byteLength - byteOffset : byteLength;
    if (!Number.isSafeInteger(count) || count < 0 || byteOffset + count > this.byteLength)
      throw wrongValue(
        op,
        "byteLength",
        `stay within the buffer's ${this.byteLength} bytes`,
        `${byteOffset} + ${show(count)}`,
      );
    return count;
  }

  dispose(): void {
    this.#planned = false;
    if (this.#memory === undefined) return;
    if (this.#borrowed) detach(this.#borrowed);
    this.#borrowed = undefined;
    this.device.borrowed.delete(this);
    this.device.submissions.forgetFailure(this.range(0, this.byteLength));
    if (this.#recordings > 0) this.#kept = this.#memory;
    else native().releaseMemory(this.#memory);
    this.#memory = undefined;
    leaks.unregister(this);
  }

  /** For an encoder that records the buffer: keeps its memory until `release`, also when the buffer is disposed. */
  retain(): NativeMemory {
    const memory = this.handle;
    this.#recordings++;
    return memory;
  }

  release(): void {
    if (--this.#recordings > 0 || this.#kept === undefined) return;
    native().releaseMemory(this.#kept);
    this.#kept = undefined;
  }

  toJSON(): ReturnType<api.Buffer["toJSON"]> {
    const { byteLength, readOnly, device, disposed } = this;
    return { type: "Buffer", byteLength, readOnly, device: device.kind, disposed };
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
