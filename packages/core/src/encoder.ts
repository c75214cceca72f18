import type * as api from "./api.ts";
import { Arena } from "./arena.ts";
import { accessesOf, checkedAccesses, witnessesOf } from "./bindings.ts";
import { Block, readTensors } from "./block.ts";
import type { Buffer } from "./buffer.ts";
import { CommandWriter, dispatchNote } from "./command_writer.ts";
import { type CommitOptions, readCommitOptions, readEndOptions } from "./commit_options.ts";
import type { DeviceCore } from "./device_core.ts";
import { type AnyKernel, type Dispatch, readDispatch, threadsOf } from "./dispatch.ts";
import type { Dtype } from "./dtype.ts";
import { type ArgumentRangeError, disposedError, wrongKind, wrongValue } from "./errors.ts";
import { fillBuffer } from "./fill.ts";
import { type Hazard, HazardTracker } from "./hazards.ts";
import { identify, printAsJson } from "./identity.ts";
import { type Access, type Kernel, type Scalar, writesTo } from "./kernel.ts";
import type { Footprint } from "./memory_uses.ts";
import { type NativeRecording, native } from "./native.ts";
import { readKeep, readOptimizations } from "./optimize.ts";
import { checkOptionNames } from "./options.ts";
import { type Optimizations, Plan } from "./plan.ts";
import type { Accesses } from "./ranges.ts";
import { isBound, Replacements, type Unoptimized } from "./rebind.ts";
import { noteWrite, Recorded } from "./recorded.ts";
import { scratchShape } from "./shape.ts";
import type { Submission } from "./submission.ts";
import { handOut, Tensor } from "./tensor.ts";

/** The commands of a recording, in order. */
type Commands = readonly (Dispatch | "barrier")[];

const isDisposed = (tensor: Tensor): boolean => tensor.disposed;

const dispatchesOf = (commands: Commands): Dispatch[] => commands.filter((command) => command !== "barrier");

function missingBarrier(op: string, { kind, earlier, later }: Hazard): ArgumentRangeError {
  const side = ({ label, range: { begin, end } }: Hazard["earlier"]) =>
    `${label} [0x${begin.toString(16)}, 0x${end.toString(16)})`;
  const rule = `have a barrier before this dispatch (${kind})`;
  return wrongValue(op, "encoder", rule, `${side(earlier)} against ${side(later)}`, "call encoder.barrier()");
}

/** Memory for the scratch of a recording and of those that `rebind` made of it. */
interface Scratch {
  readonly tensor: Tensor;
  users: number;
}

/** The class behind `CommandEncoder`. */
export class CommandEncoder implements api.CommandEncoder {
  readonly device: DeviceCore;
  readonly #arena: Arena | undefined;
  /** Undefined unless the encoder optimizes: then it holds what is recorded, which is written when the recording ends. */
  readonly #plan: Plan | undefined;
  /** Memory that was taken for the plan's scratch, unless it is the arena's. */
  #scratch: Scratch | undefined;
  readonly #mode: "auto" | "manual";
  readonly #writer = new CommandWriter();
  /** Undefined in manual mode, unless the device validates. */
  readonly #hazards: HazardTracker | undefined;
  readonly #commands: (Dispatch | "barrier")[] = [];
  /** While it is "ending", only the ops that fusion calls record. */
  #state: "recording" | "ending" | "committed" | "finished" | "disposed" = "recording";
  #lastWasBarrier = true;
  /** Whether a dispatch has been recorded. */
  #begun = false;
  readonly #recorded: Recorded;

  static {
    identify("CommandEncoder", CommandEncoder, (value) => #writer in value);
    printAsJson(CommandEncoder);
  }

  constructor(device: DeviceCore, options: api.EncoderOptions = {}, planned?: Optimizations) {
    checkOptionNames<api.EncoderOptions>("device.encoder", options, { barriers: true, arena: true, optimize: true });
    const { barriers = "auto", arena, optimize = false } = options;
    if (barriers !== "auto" && barriers !== "manual")
      throw wrongValue("device.encoder", "barriers", "be auto or manual", barriers);
    if (arena !== undefined && !(arena instanceof Arena))
      throw wrongKind("device.encoder", "arena", "be an Arena", arena);
    if (arena && arena.device !== device)
      throw wrongValue("device.encoder", "arena", "belong to the encoder's device", "an arena of another device");
    const optimizations = planned ?? readOptimizations(optimize);
    this.device = device;
    this.#mode = barriers;
    if (barriers === "auto" || device.validate) this.#hazards = new HazardTracker();
    this.#arena = arena;
    if (optimizations) this.#plan = new Plan(device, optimizations, barriers === "auto");
    this.#recorded = new Recorded(this.#plan?.accesses ?? this.#writer.accesses);
    Object.freeze(this);
  }

  get arena(): Arena | undefined {
    return this.#plan ? undefined : this.#arena;
  }

  assertRecording(call: "empty" | "dispatch" | "append" | "barrier" | "block" | "commit" | "finish"): void {
    if (this.device.disposed) throw disposedError("device");
    const fusing = this.#state === "ending" && (call === "empty" || call === "dispatch" || call === "barrier");
    if (this.#state !== "recording" && !fusing)
      throw wrongValue(
        `encoder.${call}`,
        "encoder",
        "be recording",
        `${this.#state === "ending" ? "an" : "a"} ${this.#state} encoder`,
        "make a new one with device.encoder()",
      );
  }

  empty<D extends Dtype>(dtype: D, shape: readonly number[]): Tensor<D> {
    if (this.#plan) this.assertRecording("empty");
    const from = this.#plan ?? this.#arena;
    const tensor = !from
      ? this.device.tensor(dtype, shape)
      : from instanceof Plan
        ? from.empty(dtype, shape)
        : from.alloc(dtype, shape);
    return handOut(tensor as Tensor<D>, this.#recorded);
  }

  dispatch<B extends Record<string, Access>, P extends Record<string, Scalar>, S>(
    kernel: Kernel<B, P, S>,
    args: api.DispatchArguments<B, P, S>,
  ): void {
    this.assertRecording("dispatch");
    this.record(readDispatch(kernel as unknown as AnyKernel, args as never, this.device));
  }

  /** Of an encoder that optimizes: what has been recorded. */
  get plan(): Plan | undefined {
    return this.#plan;
  }

  /** Records a dispatch whose arguments have been read. */
  record(dispatch: Dispatch): void {
    const { kernel, op, variant, launch } = dispatch;
    const { device } = this;
    const accesses = accessesOf(dispatch, device, this.#plan?.owns);
    const pipeline = device.library(kernel.library).pipelineOf(kernel, variant);
    if (threadsOf(launch) > pipeline.maxThreads) {
      const rule = `have a product of at most ${pipeline.maxThreads} for ${kernel.name}_${variant} on this device`;
      throw wrongValue(op, "threadsPerThreadgroup", rule, launch.threadsPerThreadgroup);
    }
    this.enter(dispatch, accesses, pipeline.id);
  }

  append(block: api.Block, tensors: readonly api.Tensor[]): void {
    const op = "encoder.append";
    if (!(block instanceof Block)) throw wrongKind(op, "block", "be a Block", block);
    if (block.device !== this.device)
      throw wrongValue(op, "block", "belong to the encoder's device", "a block of another device");
    if (this.#mode === "manual")
      throw wrongValue(op, "encoder", "place the barriers itself", "an encoder with manual barriers");
    // Reading the tensors may run the program's code, which may end this encoder.
    const read = block.read(op, tensors, this.#plan?.owns);
    this.assertRecording("append");
    for (const { dispatch, accesses, pipeline } of block.bind(read, (bytes) => this.empty("u8", scratchShape(bytes))))
      this.enter(dispatch, accesses, pipeline);
  }

  /** Records a dispatch that has been checked. */
  private enter(dispatch: Dispatch, accesses: Accesses, pipeline: number): void {
    const { kernel, buffers } = dispatch;
    if (this.#plan) this.#plan.add(dispatch, accesses);
    else this.write(dispatch, accesses, pipeline);
    if (!this.#begun) {
      this.#begun = true;
      this.device.submissions.recorded.begin(this.#recorded);
    }
    for (let i = 0; i < kernel.bufferNames.length; i++) {
      const name = kernel.bufferNames[i] as string;
      const tensor = buffers[name];
      if (tensor && writesTo(kernel.buffers[name] as Access)) noteWrite(tensor, this.#recorded);
    }
  }

  /** Writes a dispatch to the command list. */
  private write(dispatch: Dispatch, accesses: Accesses, pipeline: number): void {
    const { device } = this;
    if (device.debug >= 2) accesses.note = dispatchNote(dispatch, device.debug >= 3);
    this.orderAfterConflicts(dispatch.op, accesses);
    this.#writer.dispatch(pipeline, dispatch, accesses);
    this.#commands.push(dispatch);
    this.#lastWasBarrier = false;
    device.tally.dispatches++;
  }

  /** Ends the recording. When that fails after the checks, part of it is done: then the encoder is disposed. */
  private end<T>(call: "commit" | "finish", keep: unknown, last: () => T): T {
    // Reading `keep` may run the program's code, which may end this encoder: so it comes before the checks.
    const kept = readKeep(`encoder.${call}`, keep);
    this.assertRecording(call);
    this.#plan?.assertLive();
    this.#state = "ending";
    const mark = this.#plan && this.#arena?.mark();
    try {
      this.writePlan(call, kept);
      return last();
    } catch (error) {
      this.abandon();
      if (mark) this.#arena?.rewind(mark);
      throw error;
    }
  }

  /** What an encoder that optimizes has recorded, in its final form. */
  private planned(
    call: "commit" | "finish" | "block",
    keep: ReadonlySet<Buffer>,
    allocate: (bytes: number) => Tensor,
  ): Commands | undefined {
    return this.#plan?.end({
      keep,
      allocate,
      kept: (buffer) => this.#arena?.adopt(buffer, { recorded: call === "finish" }),
      call: (into, inputs, options) => into(this as never, inputs as never, options as never),
    });
  }

  /** Writes what an encoder that optimizes has recorded; what is kept can be read once it has run. */
  private writePlan(call: "commit" | "finish", kept: ReadonlySet<Buffer>): void {
    const { device } = this;
    const commands = this.planned(call, kept, (bytes) => this.allocate(bytes));
    if (!commands) return;
    for (const command of commands) {
      if (command === "barrier") this.insertBarrier();
      else {
        const { kernel, variant } = command;
        const pipeline = device.library(kernel.library).pipelineOf(kernel, variant);
        this.write(command, checkedAccesses(command), pipeline.id);
      }
    }
    this.#recorded.replace(this.#writer.accesses);
  }

  /** The recording uses scratch of another one. */
  share(scratch: Scratch | undefined): void {
    this.#scratch = scratch;
  }

  /** So many bytes for the scratch of a plan. */
  private allocate(bytes: number): Tensor {
    if (this.#arena) return this.#arena.alloc("u8", scratchShape(bytes));
    const tensor = this.device.tensor("u8", scratchShape(bytes)) as Tensor;
    if (this.device.poison) fillBuffer(tensor.buffer, 0xff);
    this.#scratch = { tensor, users: 0 };
    return tensor;
  }

  /** Inserts a barrier where the dispatch conflicts with earlier ones; in manual mode, refuses it. */
  private orderAfterConflicts(op: string, accesses: Accesses): void {
    const hazards = this.#hazards;
    if (hazards?.conflicts(accesses)) {
      const hazard = this.#mode === "manual" ? hazards.find(accesses) : undefined;
      if (hazard) throw missingBarrier(op, hazard);
      this.insertBarrier();
      this.device.tally.automaticBarriers++;
    }
    hazards?.add(accesses);
  }

  private insertBarrier(): void {
    if (this.#lastWasBarrier) return;
    this.#writer.barrier();
    this.#hazards?.clear();
    this.#commands.push("barrier");
    this.#lastWasBarrier = true;
  }

  barrier(): void {
    this.assertRecording("barrier");
    if (this.#plan) {
      this.#plan.barrier();
      return;
    }
    if (this.#lastWasBarrier) return;
    this.insertBarrier();
    this.device.tally.manualBarriers++;
  }

  commit(options: api.EndOptions & CommitOptions = {}): Submission {
    const { keep, ...given } = readEndOptions("encoder.commit", options);
    const { submissions } = this.device;
    const submission = this.end("commit", keep, () => submissions.run(this.#writer, given));
    this.#state = "committed";
    submissions.recorded.end(this.#recorded, "run");
    submissions.recorded.run(this.#writer.accesses);
    this.#scratch?.tensor.dispose();
    return submission;
  }

  finish(options: api.EndOptions = {}): Recording {
    checkOptionNames<api.EndOptions>("encoder.finish", options, { keep: true });
    const { keep } = options;
    return this.finishAs(keep);
  }

  /** Ends with a recording, or with the rebound one of another that was made of `unoptimized`. */
  finishAs(keep: unknown, unoptimized?: Unoptimized): Recording {
    const { device } = this;
    const recording = this.end("finish", keep, () => {
      const before = unoptimized ?? this.#plan?.unoptimized;
      return new Recording(device, this.#writer, this.#commands, this.#mode, this.#recorded, this.#scratch, before);
    });
    this.#state = "finished";
    device.submissions.recorded.end(this.#recorded, "finished");
    return recording;
  }

  block(tensors: readonly api.Tensor[]): Block {
    const read = readTensors("encoder.block", tensors, this.device);
    this.assertRecording("block");
    this.#plan?.assertLive();
    this.#state = "ending";
    let scratch: Tensor | undefined;
    try {
      // Scratch has no memory before a block is appended.
      const allocate = (bytes: number) => {
        scratch = this.#plan?.empty("u8", scratchShape(bytes)) as Tensor;
        return scratch;
      };
      const commands = this.planned("block", new Set(), allocate) ?? this.#commands;
      return new Block(this.device, dispatchesOf(commands), read, scratch);
    } finally {
      this.abandon();
    }
  }

  dispose(): void {
    if (this.#state === "recording") this.abandon();
  }

  private abandon(): void {
    this.#state = "disposed";
    this.device.submissions.recorded.end(this.#recorded, "abandoned");
    this.#plan?.dispose();
    if (this.#scratch?.users === 0) this.#scratch.tensor.dispose();
    if (!this.device.disposed) this.#writer.releaseBuffers();
  }

  toJSON(): ReturnType<api.CommandEncoder["toJSON"]> {
    const state = this.#state === "ending" ? "recording" : this.#state;
    const dispatches = state === "recording" ? this.#recorded.dispatches : dispatchesOf(this.#commands).length;
    return { type: "CommandEncoder", device: this.device.kind, state, barriers: this.#mode, dispatches };
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
  readonly #commands: Commands;
  readonly #mode: "auto" | "manual";
  readonly #recorded: Recorded;
  readonly #scratch: Scratch | undefined;
  readonly #unoptimized: Unoptimized | undefined;
  /** While none of these is disposed, no recorded tensor is. */
  readonly #witnesses: readonly Tensor[];

  static {
    identify("Recording", Recording, (value) => #commands in value);
    printAsJson(Recording);
  }

  constructor(
    device: DeviceCore,
    writer: CommandWriter,
    commands: Commands,
    mode: "auto" | "manual",
    recorded: Recorded,
    scratch: Scratch | undefined,
    unoptimized: Unoptimized | undefined,
  ) {
    this.device = device;
    this.#unoptimized = unoptimized;
    this.#recorded = recorded;
    this.#scratch = scratch;
    this.#commands = commands;
    this.#mode = mode;
    this.accesses = writer.accesses;
    this.footprint = writer.footprint;
    this.labels = writer.labels;
    this.#witnesses = witnessesOf(dispatchesOf(commands));
    this.#handle = device.submissions.record(writer);
    if (scratch) scratch.users++;
    Object.freeze(this);
  }

  /** Where it was replayed first. One stack is kept, since making one costs more than the rest of a replay. */
  get origin(): Error {
    this.#origin ??= new Error("committed");
    return this.#origin;
  }

  get dispatches(): number {
    return dispatchesOf(this.#commands).length;
  }

  get barriers(): number {
    return this.#commands.length - this.dispatches;
  }

  get disposed(): boolean {
    return this.#handle === undefined || this.device.disposed;
  }

  get native(): NativeRecording {
    if (this.#handle === undefined) throw disposedError("recording");
    return this.#handle;
  }

  private assertLive(): void {
    if (!this.#witnesses.some(isDisposed)) return;
    for (const { buffers } of dispatchesOf(this.#commands))
      for (const [name, tensor] of Object.entries(buffers))
        if (tensor?.disposed) throw disposedError(`tensor \`${name}\` of a recorded dispatch`);
  }

  replay(options?: CommitOptions): Submission {
    const given = readCommitOptions("recording.replay", options);
    if (this.device.disposed) throw disposedError("device");
    this.assertLive();
    const submission = this.device.submissions.submit(this, given);
    this.#recorded.state = "run";
    this.device.submissions.recorded.run(this.accesses);
    return submission;
  }

  rebind(pairs: Iterable<readonly [api.Tensor, api.Tensor]>): Recording {
    const replacements = new Replacements(pairs);
    const before = this.#unoptimized;
    if (before) replacements.assertLike(before, dispatchesOf(this.#commands));
    using encoder = new CommandEncoder(this.device, { barriers: this.#mode });
    for (const command of this.#commands) {
      if (command !== "barrier") encoder.record(replacements.replaced(command));
      else if (this.#mode === "manual") encoder.barrier();
    }
    encoder.share(this.#scratch);
    replacements.assertUsed();
    return encoder.finishAs(undefined, before && { ...before, order: before.order.map(replacements.replaced) });
  }

  binds(tensor: api.Tensor): boolean {
    if (!(tensor instanceof Tensor)) throw wrongKind("recording.binds", "tensor", "be a Tensor", tensor);
    return isBound(tensor, dispatchesOf(this.#commands));
  }

  dispose(): void {
    if (this.#handle === undefined) return;
    native().releaseRecording(this.#handle);
    this.#handle = undefined;
    if (this.#scratch && --this.#scratch.users === 0) this.#scratch.tensor.dispose();
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
