import type * as api from "./api.ts";
import { Arena } from "./arena.ts";
import type { Buffer } from "./buffer.ts";
import { type AnyKernel, CommandWriter, dispatchNote, type Node } from "./command_writer.ts";
import { type CommitOptions, readCommitOptions } from "./commit_options.ts";
import type { DeviceCore } from "./device_core.ts";
import { readDispatch, threadsOf } from "./dispatch.ts";
import type { Dtype } from "./dtype.ts";
import { disposedError, wrongKind, wrongValue } from "./errors.ts";
import { HazardTracker } from "./hazards.ts";
import { identify, printAsJson } from "./identity.ts";
import type { Access, Kernel, Scalar } from "./kernel.ts";
import type { Footprint } from "./memory_uses.ts";
import { type NativeRecording, native } from "./native.ts";
import { checkOptionNames } from "./options.ts";
import { type Accesses, overlaps, sameRange } from "./ranges.ts";
import { handOut, noteWrite, Recorded } from "./recorded.ts";
import { overrunText, SCRATCH_OVERRUN } from "./scratch.ts";
import { isArray } from "./shape.ts";
import type { Submission } from "./submission.ts";
import { Tensor } from "./tensor.ts";

const READS: ReadonlySet<Access> = new Set<Access>(["read", "read?"]);

/** The class behind `CommandEncoder`. */
export class CommandEncoder implements api.CommandEncoder {
  readonly device: DeviceCore;
  readonly arena: Arena | undefined;
  readonly #mode: "auto" | "manual";
  readonly #writer = new CommandWriter();
  /** None where nobody asks for missing barriers. */
  readonly #hazards: HazardTracker | undefined;
  readonly #nodes: (Node | "barrier")[] = [];
  #state: "recording" | "committed" | "finished" | "disposed" = "recording";
  #lastWasBarrier = true;
  readonly #recorded = new Recorded(this.#writer.accesses);

  static {
    identify("CommandEncoder", CommandEncoder, (value) => #writer in value);
    printAsJson(CommandEncoder);
  }

  constructor(device: DeviceCore, options: api.EncoderOptions = {}) {
    checkOptionNames<api.EncoderOptions>("device.encoder", options, { barriers: true, arena: true });
    const { barriers = "auto", arena } = options;
    if (barriers !== "auto" && barriers !== "manual")
      throw wrongValue("device.encoder", "barriers", "be auto or manual", barriers);
    if (arena !== undefined && !(arena instanceof Arena))
      throw wrongKind("device.encoder", "arena", "be an Arena", arena);
    if (arena && arena.device !== device)
      throw wrongValue("device.encoder", "arena", "belong to the encoder's device", "an arena of another device");
    this.device = device;
    this.#mode = barriers;
    if (barriers === "auto" || device.validate) this.#hazards = new HazardTracker();
    this.arena = arena;
    Object.freeze(this);
  }

  private assertRecording(call: string): void {
    if (this.device.disposed) throw disposedError("device");
    if (this.#state !== "recording")
      throw wrongValue(
        `encoder.${call}`,
        "encoder",
        "be recording",
        `a ${this.#state} encoder`,
        "make a new one with device.encoder()",
      );
  }

  empty<D extends Dtype>(dtype: D, shape: readonly number[]): Tensor<D> {
    const tensor = this.arena ? this.arena.alloc(dtype, shape) : this.device.tensor(dtype, shape);
    return handOut(tensor as Tensor<D>, this.#recorded);
  }

  dispatch<B extends Record<string, Access>, P extends Record<string, Scalar>, S>(
    kernel: Kernel<B, P, S>,
    args: api.DispatchArguments<B, P, S>,
  ): void {
    this.assertRecording("dispatch");
    this.record(readDispatch(kernel as unknown as AnyKernel, args as never, this.device));
  }

  /** Records a dispatch whose arguments have been read. */
  record(node: Node): void {
    const { kernel, op, variant, launch } = node;
    const accesses = this.checkBuffers(node);
    const pipeline = this.device.library(kernel.library).pipeline(kernel.name, variant);
    if (threadsOf(launch) > pipeline.maxThreads)
      throw wrongValue(
        op,
        "threadsPerThreadgroup",
        `have a product of at most ${pipeline.maxThreads} for ${kernel.name}_${variant} on this device`,
        launch.threadsPerThreadgroup,
      );

    if (this.device.debug >= 2) accesses.note = dispatchNote(node, this.device.debug >= 3);
    const conflicts = this.#hazards?.conflicts(accesses);
    const hazard = conflicts && this.#mode === "manual" ? this.#hazards?.find(accesses) : undefined;
    if (hazard) {
      const side = ({ label, range }: { label: string; range: { begin: number; end: number } }) =>
        `${label} [0x${range.begin.toString(16)}, 0x${range.end.toString(16)})`;
      throw wrongValue(
        op,
        "encoder",
        `have a barrier before this dispatch (${hazard.kind})`,
        `${side(hazard.earlier)} against ${side(hazard.later)}`,
        "call encoder.barrier()",
      );
    }
    if (conflicts) {
      this.insertBarrier();
      this.device.tally.automaticBarriers++;
    }
    this.#hazards?.add(accesses);
    if (this.#nodes.length === 0) this.device.submissions.recorded.begin(this.#recorded);
    for (const name of kernel.bufferNames) {
      const tensor = node.buffers[name];
      if (tensor && !READS.has(kernel.buffers[name] as Access)) noteWrite(tensor, this.#recorded);
    }
    this.#writer.dispatch(pipeline.id, node, accesses);
    this.#nodes.push(node);
    this.#lastWasBarrier = false;
    this.device.tally.dispatches++;
  }

  private checkBuffers({ kernel, op, variant, buffers, params }: Node): Accesses {
    const accesses: Accesses = { label: `${op}/${kernel.name}_${variant}`, reads: [], writes: [] };
    accesses.fault = (code, words) =>
      code === SCRATCH_OVERRUN
        ? overrunText(kernel.scratch.cpu, words[0])
        : kernel.faultTexts[code - 1]?.(words, params);
    const bound: { name: string; tensor: Tensor; writes: boolean }[] = [];
    for (const name of kernel.bufferNames) {
      const access = kernel.buffers[name] as Access;
      const tensor = buffers[name];
      if (tensor === undefined) continue;
      if (tensor.device !== this.device)
        throw wrongValue(op, name, "belong to the encoder's device", "a tensor of another device");
      if (tensor.disposed) throw disposedError(`tensor \`${name}\``);
      if (tensor.byteOffset % this.device.limits.bufferOffsetAlignment !== 0)
        throw wrongValue(
          op,
          name,
          `start at a multiple of ${this.device.limits.bufferOffsetAlignment} bytes on this device`,
          tensor.byteOffset,
        );
      const writes = !access.startsWith("read") || access.startsWith("readWrite");
      if (writes && tensor.buffer.readOnly) throw wrongValue(op, name, "be writable", "a read-only tensor");
      if (access.startsWith("read")) accesses.reads.push(tensor.range);
      if (writes) accesses.writes.push(tensor.range);
      bound.push({ name, tensor, writes });
    }
    for (const a of bound) {
      if (!a.writes) continue;
      for (const b of bound) {
        if (a === b || !overlaps(a.tensor.range, b.tensor.range)) continue;
        const allowed =
          kernel.inPlace?.some(([out, input]) => out === a.name && input === b.name) ||
          (b.writes && kernel.inPlace?.some(([out, input]) => out === b.name && input === a.name));
        if (!(allowed && sameRange(a.tensor.range, b.tensor.range)))
          throw wrongValue(op, a.name, `not overlap \`${b.name}\``, "overlapping views");
      }
    }
    return accesses;
  }

  private insertBarrier(): void {
    if (this.#lastWasBarrier) return;
    this.#writer.barrier();
    this.#hazards?.clear();
    this.#nodes.push("barrier");
    this.#lastWasBarrier = true;
  }

  barrier(): void {
    this.assertRecording("barrier");
    if (this.#lastWasBarrier) return;
    this.insertBarrier();
    this.device.tally.manualBarriers++;
  }

  commit(options: CommitOptions = {}): Submission {
    const given = readCommitOptions("encoder.commit", options);
    this.assertRecording("commit");
    const { submissions } = this.device;
    const submission = submissions.run(this.#writer, given);
    this.#state = "committed";
    submissions.recorded.end(this.#recorded, "run");
    submissions.recorded.run(this.#writer.accesses);
    return submission;
  }

  finish(): Recording {
    this.assertRecording("finish");
    this.#state = "finished";
    this.device.submissions.recorded.end(this.#recorded, "finished");
    return new Recording(this.device, this.#writer, this.#nodes, this.#mode, this.#recorded);
  }

  dispose(): void {
    if (this.#state !== "recording") return;
    this.#state = "disposed";
    this.device.submissions.recorded.end(this.#recorded, "abandoned");
    if (!this.device.disposed) this.#writer.letGo();
  }

  toJSON(): ReturnType<api.CommandEncoder["toJSON"]> {
    const dispatches = this.#nodes.filter((node) => node !== "barrier").length;
    return { type: "CommandEncoder", device: this.device.kind, state: this.#state, barriers: this.#mode, dispatches };
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** The class behind `Recording`. */
export class Recording implements api.Recording {
  readonly device: DeviceCore;
  readonly accesses: readonly Accesses[];
  readonly footprint: Footprint;
  readonly labels: readonly string[];
  #origin: Error | undefined;
  #handle: NativeRecording | undefined;
  readonly #nodes: readonly (Node | "barrier")[];
  readonly #mode: "auto" | "manual";
  readonly #recorded: Recorded;
  /** One tensor for each buffer and arena generation: as long as these live, all do. */
  readonly #witnesses: readonly Tensor[];

  static {
    identify("Recording", Recording, (value) => #nodes in value);
    printAsJson(Recording);
  }

  constructor(
    device: DeviceCore,
    writer: CommandWriter,
    nodes: readonly (Node | "barrier")[],
    mode: "auto" | "manual",
    recorded: Recorded,
  ) {
    this.device = device;
    this.#recorded = recorded;
    this.#nodes = nodes;
    this.#mode = mode;
    this.accesses = writer.accesses;
    this.footprint = writer.footprint;
    this.labels = writer.labels;
    const witnesses = new Map<Buffer, Map<number | undefined, Tensor>>();
    for (const tensor of this.tensors()) {
      const generations = witnesses.get(tensor.buffer) ?? new Map<number | undefined, Tensor>();
      witnesses.set(tensor.buffer, generations.set(tensor.generation, tensor));
    }
    this.#witnesses = [...witnesses.values()].flatMap((generations) => [...generations.values()]);
    this.#handle = device.submissions.record(writer);
    Object.freeze(this);
  }

  /** Where it was replayed first: a stack costs more than the rest of a replay. */
  get origin(): Error {
    this.#origin ??= new Error("committed");
    return this.#origin;
  }

  get dispatches(): number {
    return this.#nodes.filter((node) => node !== "barrier").length;
  }

  get barriers(): number {
    return this.#nodes.length - this.dispatches;
  }

  get disposed(): boolean {
    return this.#handle === undefined || this.device.disposed;
  }

  get native(): NativeRecording {
    if (this.#handle === undefined) throw disposedError("recording");
    return this.#handle;
  }

  private *tensors(): Iterable<Tensor> {
    for (const node of this.#nodes)
      if (node !== "barrier") for (const tensor of Object.values(node.buffers)) if (tensor) yield tensor;
  }

  private assertLive(): void {
    if (!this.#witnesses.some((tensor) => tensor.disposed)) return;
    for (const node of this.#nodes)
      if (node !== "barrier")
        for (const [name, tensor] of Object.entries(node.buffers))
          if (tensor?.disposed) throw disposedError(`tensor \`${name}\` of a recorded dispatch`);
  }

  replay(options: CommitOptions = {}): Submission {
    const given = readCommitOptions("recording.replay", options);
    if (this.device.disposed) throw disposedError("device");
    this.assertLive();
    const submission = this.device.submissions.submit(this, given);
    this.#recorded.state = "run";
    this.device.submissions.recorded.run(this.accesses);
    return submission;
  }

  rebind(pairs: Iterable<readonly [api.Tensor, api.Tensor]>): Recording {
    const swap = readPairs(pairs);
    for (const [from, to] of swap) {
      if (from.dtype !== to.dtype || from.byteLength !== to.byteLength)
        throw wrongValue(
          "recording.rebind",
          "pairs",
          `keep dtype and bytes (${from.dtype}, ${from.byteLength})`,
          `${to.dtype}, ${to.byteLength}`,
        );
    }
    const replacements = new Map<Buffer, Map<string, Tensor>>();
    const view = ({ dtype, byteOffset, byteLength: bytes }: Tensor) => `${dtype} ${byteOffset} ${bytes}`;
    for (const [from, to] of swap) {
      const views = replacements.get(from.buffer) ?? new Map<string, Tensor>();
      if (!views.has(view(from))) views.set(view(from), to);
      replacements.set(from.buffer, views);
    }
    const replace = (tensor: Tensor | undefined) =>
      tensor && (replacements.get(tensor.buffer)?.get(view(tensor)) ?? tensor);
    const encoder = new CommandEncoder(this.device, { barriers: this.#mode });
    for (const node of this.#nodes) {
      if (node === "barrier") {
        if (this.#mode === "manual") encoder.barrier();
        continue;
      }
      const buffers = Object.fromEntries(Object.entries(node.buffers).map(([name, tensor]) => [name, replace(tensor)]));
      encoder.record({ ...node, buffers });
    }
    return encoder.finish();
  }

  dispose(): void {
    if (this.#handle === undefined) return;
    native().releaseRecording(this.#handle);
    this.#handle = undefined;
    if (this.#recorded.state === "finished") this.#recorded.state = "abandoned";
  }

  toJSON(): ReturnType<api.Recording["toJSON"]> {
    const { device, dispatches, barriers, disposed } = this;
    return { type: "Recording", device: device.kind, dispatches, barriers, disposed };
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** Copies of pairs of tensors. */
function readPairs(pairs: unknown): [from: Tensor, to: Tensor][] {
  const fail = (value: unknown): never => {
    throw wrongKind("recording.rebind", "pairs", "be pairs of tensors", value);
  };
  let list: unknown[] = [];
  try {
    list = [...(pairs as Iterable<unknown>)];
  } catch {
    fail(pairs);
  }
  return list.map((pair) => {
    if (!isArray(pair)) return fail(pair);
    const [from, to] = pair;
    if (!(from instanceof Tensor)) return fail(from);
    if (!(to instanceof Tensor)) return fail(to);
    return [from, to];
  });
}
