// What an encoder that optimizes has recorded: dispatches over scratch that has no memory before the recording ends.
import { Buffer } from "./buffer.ts";
import type { DeviceCore } from "./device_core.ts";
import type { Dispatch } from "./dispatch.ts";
import { checkDtype, type Dtype } from "./dtype.ts";
import { disposedError, MlxtsError } from "./errors.ts";
import { fuse } from "./fuse.ts";
import type { Fusion } from "./fusion.ts";
import type { Graph, GraphNode, OpCall } from "./graph.ts";
import { placeScratch } from "./place.ts";
import type { Accesses } from "./ranges.ts";
import type { Unoptimized } from "./rebind.ts";
import { reorder } from "./reorder.ts";
import { bytesOf, copyShape, countOf } from "./shape.ts";
import { type Tensor, viewLike, wholeTensor } from "./tensor.ts";

/** Where scratch seems to lie: no memory has such addresses, and numbers still count single bytes there. */
const FIRST_ADDRESS = 2 ** 52;
/** Scratch buffers seem to lie so many bytes apart at least. */
const DISTANCE = 256;

/** What an encoder does to a recording when it ends. */
export interface Optimizations {
  readonly fuse: readonly Fusion[];
  readonly reorder: boolean;
  readonly reuseScratch: boolean;
}

/** What a plan needs of its encoder when the recording ends. */
interface Ending {
  /** Scratch that gets memory of its own, because the program wants to see it. */
  keep: ReadonlySet<Buffer>;
  /** So many bytes, as u8, for all other scratch. */
  allocate(bytes: number): Tensor;
  /** Told of each buffer that was kept. */
  kept(buffer: Buffer): void;
  /** Calls an op on the encoder. */
  call(op: Fusion["into"], inputs: object, options: object): void;
}

/** The commands of a recording in their final form. */
type Commands = (Dispatch | "barrier")[];

export class Plan {
  readonly optimizations: Optimizations;
  /** What is recorded reads and writes; scratch at the addresses where it seems to lie. */
  readonly accesses: Accesses[] = [];
  private readonly device: DeviceCore;
  private readonly automatic: boolean;
  private readonly scratch = new Set<Buffer>();
  private commands: (GraphNode | "barrier")[] = [];
  private call: OpCall | undefined;
  private latest: OpCall | undefined;
  /** Calls that have called other ops. */
  private readonly outer = new Set<OpCall>();
  private nextAddress = FIRST_ADDRESS;
  /** Whether the end of the recording has left out or moved dispatches. */
  private changed = false;

  constructor(device: DeviceCore, optimizations: Optimizations, automatic: boolean) {
    this.device = device;
    this.optimizations = optimizations;
    this.automatic = automatic;
  }

  empty<D extends Dtype>(dtype: D, shape: readonly number[]): Tensor<D> {
    const op = "encoder.empty";
    const dims = copyShape(op, shape);
    checkDtype(op, dtype);
    const size = countOf(op, dims);
    const bytes = bytesOf(op, dtype, dims, size);
    const { kind, limits } = this.device;
    // Ranges are compared as exact numbers.
    if (bytes > limits.maxBufferBytes || this.nextAddress + bytes + DISTANCE > Number.MAX_SAFE_INTEGER)
      throw new MlxtsError("BufferAllocation", `${op}: cannot allocate ${bytes} bytes of scratch on ${kind}`, {
        bytes,
      });
    const buffer = new Buffer(this.device, { address: this.nextAddress }, bytes);
    this.nextAddress += Math.ceil(bytes / DISTANCE) * DISTANCE;
    this.scratch.add(buffer);
    return wholeTensor(buffer, dtype, dims, size);
  }

  /** Whether a buffer is scratch of this recording. */
  readonly owns = (buffer: Buffer): boolean => this.scratch.has(buffer);

  add(dispatch: Dispatch, accesses: Accesses): void {
    this.accesses.push(accesses);
    this.commands.push({ dispatch, accesses, call: this.call });
  }

  barrier(): void {
    if (!this.automatic) this.commands.push("barrier");
  }

  /** All dispatches, in program order. */
  get nodes(): readonly GraphNode[] {
    return this.commands.filter((command) => command !== "barrier");
  }

  /** What the recording was before its end. */
  get unoptimized(): Unoptimized {
    return { order: this.nodes.map(({ dispatch }) => dispatch), changed: this.changed };
  }

  /** The latest call that no other one made. */
  get latestCall(): OpCall {
    return this.latest as OpCall;
  }

  /** Runs the encoding of a call: what it dispatches is known to come from it. */
  during(call: OpCall, encode: () => void): void {
    const outer = this.call;
    if (outer) this.outer.add(outer);
    else this.latest = call;
    this.call = call;
    try {
      encode();
    } finally {
      this.call = outer;
    }
  }

  /** What `encode` records, kept apart from the recording. */
  private collect(encode: () => void): GraphNode[] {
    const { commands } = this;
    this.commands = [];
    try {
      encode();
      return this.commands.filter((command) => command !== "barrier");
    } finally {
      this.commands = commands;
    }
  }

  /** Refuses to end a recording with a tensor of the program that has been disposed since. */
  assertLive(): void {
    for (const command of this.commands) {
      if (command === "barrier") continue;
      const { kernel, buffers } = command.dispatch;
      for (let i = 0; i < kernel.bufferNames.length; i++) {
        const name = kernel.bufferNames[i] as string;
        const tensor = buffers[name];
        if (tensor?.disposed && !this.scratch.has(tensor.buffer))
          throw disposedError(`tensor \`${name}\` of a recorded dispatch`);
      }
    }
  }

  /** The recording in its final form. Kept scratch has its own memory then, and all other scratch is dead. */
  end({ keep, allocate, kept, call }: Ending): Commands {
    const { commands } = this;
    const graph = this.automatic ? this.optimized(commands as GraphNode[], keep, call) : commands;
    this.changed = graph.length !== commands.length || graph.some((command, at) => command !== commands[at]);
    const placed = this.placed(graph, keep, allocate);
    for (const buffer of this.scratch)
      if (!keep.has(buffer)) buffer.dispose();
      else {
        buffer.place();
        kept(buffer);
      }
    return placed;
  }

  private optimized(nodes: GraphNode[], keep: ReadonlySet<Buffer>, call: Ending["call"]): Graph {
    const { device, optimizations } = this;
    const { tally } = device;
    const fused = fuse(nodes, optimizations.fuse, {
      isScratch: (buffer) => this.scratch.has(buffer) && !keep.has(buffer),
      isOuter: (each) => this.outer.has(each),
      record: (into, inputs, options) => this.collect(() => call(into, inputs, options)),
    });
    tally.fusedPairs += fused.fused;
    if (device.debug >= 2) for (const refusal of fused.refusals) process.stderr.write(`mlxts not fused: ${refusal}\n`);
    if (!optimizations.reorder) return fused.nodes;
    const { order, moved } = reorder(fused.nodes);
    tally.movedNodes += moved;
    return order;
  }

  /** The same commands with tensors that have memory. */
  private placed(graph: Graph, keep: ReadonlySet<Buffer>, allocate: Ending["allocate"]): Commands {
    const { automatic, optimizations } = this;
    const isPlaced = (buffer: Buffer) => this.scratch.has(buffer) && !keep.has(buffer);
    const { places, bytes } = placeScratch(graph, isPlaced, { automatic, reuse: optimizations.reuseScratch });
    const block = bytes > 0 ? allocate(bytes) : undefined;
    const views = new Map<Tensor, Tensor>();
    const placedView = (tensor: Tensor | undefined): Tensor | undefined => {
      const place = tensor && places.get(tensor.buffer);
      if (!block || !tensor || place === undefined) return tensor;
      let view = views.get(tensor);
      if (!view) {
        view = viewLike(block, place + tensor.byteOffset, tensor);
        views.set(tensor, view);
      }
      return view;
    };
    return graph.map((command) => {
      if (command === "barrier") return command;
      const { dispatch } = command;
      const buffers = { ...dispatch.buffers };
      const names = dispatch.kernel.bufferNames;
      for (let i = 0; i < names.length; i++) buffers[names[i] as string] = placedView(buffers[names[i] as string]);
      return { ...dispatch, buffers };
    });
  }

  /** The recording is abandoned. */
  dispose(): void {
    for (const buffer of this.scratch) buffer.dispose();
  }
}
