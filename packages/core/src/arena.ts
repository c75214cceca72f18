import type * as api from "./api.ts";
import { Buffer } from "./buffer.ts";
import type { DeviceCore } from "./device_core.ts";
import type { Dtype } from "./dtype.ts";
import { MlxtsError, wrongKind, wrongValue } from "./errors.ts";
import { fillBuffer } from "./fill.ts";
import { identify, printAsJson } from "./identity.ts";
import { checkOptionNames } from "./options.ts";
import { copyShape, tensorBytes } from "./shape.ts";
import { Tensor } from "./tensor.ts";

/** Tensors in an arena start at multiples of this many bytes: every device can bind them there. */
export const ARENA_ALIGNMENT = 256;

/** Bytes that a tensor takes in an arena. */
export function arenaBytes(dtype: Dtype, shape: readonly number[]): number {
  return aligned(tensorBytes(dtype, shape, "arenaBytes"));
}

const aligned = (bytes: number): number => Math.ceil(bytes / ARENA_ALIGNMENT) * ARENA_ALIGNMENT;

/** A place in an arena. */
interface Place extends api.ArenaMark {
  /** How many buffers a rewind to this place leaves to the arena. */
  readonly adopted: number;
}

/** The class behind `Arena`. */
export class Arena implements api.Arena {
  readonly device: DeviceCore;
  readonly #grow: boolean;
  readonly #blocks: Buffer[];
  #at: Place = { block: 0, used: 0, adopted: 0 };
  #peak = 0;
  #resets = 0;
  /** Memory that kept tensors got for themselves: it goes when the arena takes back its own. */
  readonly #adopted: Buffer[] = [];
  /** The same for tensors of recordings, which a rewind leaves as they are. */
  readonly #recorded: Buffer[] = [];
  #gone = false;
  /** The marks that can be rewound to, in order of place. */
  readonly #marks: Place[] = [];

  static {
    identify("Arena", Arena, (value) => #grow in value);
    printAsJson(Arena);
  }

  constructor(device: DeviceCore, byteLength: number, options: api.ArenaOptions = {}) {
    checkOptionNames<api.ArenaOptions>("device.arena", options, { grow: true });
    const { grow = false } = options;
    if (typeof grow !== "boolean") throw wrongKind("device.arena", "grow", "be a boolean", grow);
    this.device = device;
    this.#grow = grow;
    this.#blocks = [this.newBlock(byteLength)];
    Object.freeze(this);
  }

  private newBlock(byteLength: number): Buffer {
    const block = new Buffer(this.device, this.device.allocate(byteLength), byteLength);
    this.poison(block);
    return block;
  }

  /** Fills a block with NaN where the device was opened with `poison`. */
  private poison(block: Buffer): void {
    if (this.device.poison) fillBuffer(block, 0xff);
  }

  get byteLength(): number {
    return this.#blocks.reduce((sum, block) => sum + block.byteLength, 0);
  }

  get used(): number {
    return this.#blocks.slice(0, this.#at.block).reduce((sum, block) => sum + block.byteLength, 0) + this.#at.used;
  }

  get free(): number {
    return this.#grow ? Number.POSITIVE_INFINITY : this.byteLength - this.used;
  }

  get peakBytes(): number {
    return this.#peak;
  }

  /** Counts resets; a tensor remembers the generation that it was made in. */
  get generation(): number {
    return this.#resets;
  }

  get disposed(): boolean {
    return this.#gone || this.device.disposed;
  }

  alloc<D extends Dtype>(dtype: D, shape: readonly number[]): Tensor<D> {
    const dims = copyShape("arena.alloc", shape);
    const bytes = aligned(tensorBytes(dtype, dims, "arena.alloc"));
    if (this.disposed) throw new MlxtsError("Disposed", "the arena has been disposed", { what: "arena" });
    let { block, used } = this.#at;
    while (used + bytes > (this.#blocks[block] as Buffer).byteLength) {
      if (block + 1 < this.#blocks.length) {
        block++;
        used = 0;
      } else if (this.#grow) {
        this.#blocks.push(this.newBlock(Math.max(bytes, this.byteLength)));
      } else {
        const free = (this.#blocks[block] as Buffer).byteLength - used;
        const remedy = `make the arena at least ${this.used + bytes} bytes`;
        throw wrongValue("arena.alloc", "shape", `fit the arena's ${free} free bytes`, `${bytes} bytes`, remedy);
      }
    }
    const tensor = new Tensor(this.#blocks[block] as Buffer, dtype, dims, {
      byteOffset: used,
      arena: this,
    });
    this.#at = { block, used: used + bytes, adopted: this.#adopted.length };
    this.#peak = Math.max(this.#peak, this.used);
    return tensor;
  }

  mark(): api.ArenaMark {
    if (this.#marks.at(-1) !== this.#at) this.#marks.push(Object.freeze(this.#at));
    return this.#at;
  }

  rewind(mark: api.ArenaMark): void {
    if (mark === null || typeof mark !== "object") throw wrongKind("arena.rewind", "mark", "be an ArenaMark", mark);
    const index = this.#marks.lastIndexOf(mark as Place);
    if (index < 0)
      throw wrongValue(
        "arena.rewind",
        "mark",
        "come from arena.mark() and lie before what is handed out",
        "a mark of another arena, or from before a reset or an earlier rewind",
      );
    this.#marks.length = index + 1;
    this.#at = mark as Place;
    for (const buffer of this.#adopted.splice(this.#at.adopted)) buffer.dispose();
  }

  /** Disposes the buffer with the next reset, or the next rewind to a place before this one unless a recording uses it. */
  adopt(buffer: Buffer, { recorded }: { recorded: boolean }): void {
    if (recorded) this.#recorded.push(buffer);
    else this.#at = { ...this.#at, adopted: this.#adopted.push(buffer) };
  }

  private disposeAdopted(): void {
    for (const buffers of [this.#adopted, this.#recorded]) for (const buffer of buffers.splice(0)) buffer.dispose();
  }

  reset(): void {
    this.disposeAdopted();
    this.#at = { block: 0, used: 0, adopted: 0 };
    this.#marks.length = 0;
    this.#resets++;
    if (!this.disposed) for (const block of this.#blocks) this.poison(block);
  }

  dispose(): void {
    this.#resets++;
    this.#gone = true;
    this.disposeAdopted();
    for (const block of this.#blocks) block.dispose();
  }

  toJSON(): ReturnType<api.Arena["toJSON"]> {
    const { device, byteLength, used, peakBytes, disposed } = this;
    return { type: "Arena", device: device.kind, byteLength, used, peakBytes, disposed };
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
