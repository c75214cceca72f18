import type { Buffer } from "./buffer.ts";
import type { Device } from "./device.ts";
import type { Dtype } from "./dtype.ts";
import { MlxtsError, wrongKind, wrongValue } from "./errors.ts";
import { identify, printAsJson } from "./identity.ts";
import { checkOptionNames } from "./options.ts";
import { copyShape, tensorBytes } from "./shape.ts";
import { Tensor } from "./tensor.ts";

/** Blocks start at multiples of this: one cache line pair, and every device's offset alignment. */
export const ARENA_ALIGNMENT = 256;

/** Bytes that a tensor takes in an arena. */
export function arenaBytes(dtype: Dtype, shape: readonly number[]): number {
  return aligned(tensorBytes(dtype, shape, "arenaBytes"));
}

const aligned = (bytes: number): number => Math.ceil(bytes / ARENA_ALIGNMENT) * ARENA_ALIGNMENT;

export interface ArenaOptions {
  /** Take more memory instead of refusing. Default `false`. */
  grow?: boolean | undefined;
}

/** A place in an arena, to rewind to. */
export interface ArenaMark {
  readonly block: number;
  readonly used: number;
}

/**
 * Scratch for one forward pass: blocks of memory handed out in order and taken back all at once by `reset()`.
 * Contents are undefined. Tensors from before a reset are dead; work in flight that still uses them is ordered before
 * later work by the device, so a reset never waits.
 */
export class Arena {
  readonly device: Device;
  readonly #grow: boolean;
  readonly #blocks: Buffer[];
  #at: ArenaMark = { block: 0, used: 0 };
  #peak = 0;
  #resets = 0;
  #gone = false;
  /** Those that can be rewound to, in order of place. */
  readonly #marks: ArenaMark[] = [];

  static {
    identify("Arena", Arena, (value) => #grow in value);
    printAsJson(Arena);
  }

  /** @internal Use `device.arena`. */
  constructor(device: Device, bytes: number, options: ArenaOptions = {}) {
    checkOptionNames<ArenaOptions>("device.arena", options, { grow: true });
    const { grow = false } = options;
    if (typeof grow !== "boolean") throw wrongKind("device.arena", "grow", "be a boolean", grow);
    this.device = device;
    this.#grow = grow;
    this.#blocks = [device.buffer(bytes)];
    this.poison();
    Object.freeze(this);
  }

  private poison(first = 0): void {
    if (this.device.poison) for (const block of this.#blocks.slice(first)) this.device.submissions.fill(block, 0xff);
  }

  /** Bytes held from the device. */
  get byteLength(): number {
    return this.#blocks.reduce((sum, block) => sum + block.byteLength, 0);
  }

  /** Bytes handed out and not taken back; in an arena that has grown, with what was left over in full blocks. */
  get used(): number {
    return this.#blocks.slice(0, this.#at.block).reduce((sum, block) => sum + block.byteLength, 0) + this.#at.used;
  }

  /** Bytes that can still be handed out; Infinity when the arena grows. */
  get free(): number {
    return this.#grow ? Number.POSITIVE_INFINITY : this.byteLength - this.used;
  }

  /** The largest `used` since the arena was made. */
  get peakBytes(): number {
    return this.#peak;
  }

  /** @internal Counts resets; a tensor remembers the one it was made in. */
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
        this.#blocks.push(this.device.buffer(Math.max(bytes, this.byteLength)));
        this.poison(this.#blocks.length - 1);
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
    this.#at = { block, used: used + bytes };
    this.#peak = Math.max(this.#peak, this.used);
    return tensor;
  }

  /** The current place; `rewind` takes back what was handed out after it. It is good until the arena is rewound past it or reset. */
  mark(): ArenaMark {
    if (this.#marks.at(-1) !== this.#at) this.#marks.push(Object.freeze(this.#at));
    return this.#at;
  }

  /**
   * Hands the memory after `mark` out again, within the same recording: the layers of a model share one layer's scratch.
   * Dispatches recorded before stay valid (barriers keep the order); new ones must not use tensors from after the mark.
   * @throws RangeError when the mark is not of this arena, or the arena was rewound past it or reset since
   */
  rewind(mark: ArenaMark): void {
    if (mark === null || typeof mark !== "object") throw wrongKind("arena.rewind", "mark", "be an ArenaMark", mark);
    const index = this.#marks.lastIndexOf(mark);
    if (index < 0)
      throw wrongValue(
        "arena.rewind",
        "mark",
        "come from arena.mark() and lie before what is handed out",
        "a mark of another arena, or from before a reset or an earlier rewind",
      );
    this.#marks.length = index + 1;
    this.#at = mark;
  }

  /** Takes every block back. */
  reset(): void {
    this.#at = { block: 0, used: 0 };
    this.#marks.length = 0;
    this.#resets++;
    if (!this.disposed) this.poison();
  }

  dispose(): void {
    this.#resets++;
    this.#gone = true;
    for (const block of this.#blocks) block.dispose();
  }

  /** What the arena holds. */
  toJSON(): { type: "Arena"; device: string; byteLength: number; used: number; peakBytes: number; disposed: boolean } {
    const { device, byteLength: bytes, used, peakBytes, disposed } = this;
    return { type: "Arena", device: device.kind, byteLength: bytes, used, peakBytes, disposed };
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
