import type * as api from "./api.ts";
import type { SubmissionResult } from "./api.ts";
import type { CommitOptions } from "./commit_options.ts";
import type { Tally } from "./counters.ts";
import { wrongValue } from "./errors.ts";
import { identify, printAsJson } from "./identity.ts";
import { IntervalMap } from "./interval_map.ts";
import { Footprint, MemoryUses, type Use } from "./memory_uses.ts";
import { type NativeDevice, type NativeMemory, type NativeOutcome, type NativeRecording, native } from "./native.ts";
import type { Accesses, Range } from "./ranges.ts";
import { RecordedWork } from "./recorded.ts";
import { abortable } from "./signal.ts";
import { failureOf } from "./submission_failure.ts";

/** How a submission ended: with one of the two. */
interface Ended {
  readonly result?: SubmissionResult;
  readonly error?: Error;
}

/** What a submission knows of the commands that it runs. */
interface Submitted {
  /** What each dispatch or fill touches, by command tag. */
  readonly accesses: readonly Accesses[];
  /** The label of each dispatch or fill, by command tag. */
  readonly labels: readonly string[];
  readonly footprint: Footprint;
}

/** Commands as an encoder has written them. */
interface CommandList extends Submitted {
  readonly words: { readonly array: Uint32Array; readonly count: number };
  readonly memories: NativeMemory[];
  /** Releases the buffers: native code holds their memory from here on. */
  releaseBuffers(): void;
}

/** Commands that native code keeps. */
interface KeptCommands extends Submitted {
  readonly native: NativeRecording;
  /** Where they were submitted first. */
  readonly origin: Error;
}

/** The class behind `Submission`. */
export class Submission implements api.Submission {
  readonly id: number;
  /** Released at the end. */
  #commands: Submitted;
  /** Where `commit` or, for the first time, `replay` was called: for errors that arrive later. */
  readonly origin: Error;
  readonly #queue: SubmissionQueue;
  readonly #signal: AbortSignal | undefined;
  #work: Promise<SubmissionResult> | undefined;
  /** What is awaited: the end of the work or, if that comes first, the abortion by the signal. */
  #promise: Promise<SubmissionResult> | undefined;
  #settle: { resolve(result: SubmissionResult): void; reject(error: Error): void } | undefined;
  #observed = false;
  #ended: Ended | undefined;

  static {
    identify("Submission", Submission, (value) => #queue in value);
    printAsJson(Submission);
  }

  constructor(queue: SubmissionQueue, id: number, commands: Submitted, origin: Error, signal: AbortSignal | undefined) {
    this.origin = origin;
    this.#queue = queue;
    this.#signal = signal;
    this.id = id;
    this.#commands = commands;
    Object.freeze(this);
  }

  get commands(): Submitted {
    return this.#commands;
  }

  get state(): "committed" | "completed" | "failed" {
    if (!this.#ended) return "committed";
    return this.#ended.error ? "failed" : "completed";
  }

  // biome-ignore lint/suspicious/noThenProperty: being awaitable is what this class is for
  then<A = SubmissionResult, B = never>(
    onDone?: ((result: SubmissionResult) => A | PromiseLike<A>) | null,
    onFailed?: ((error: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    this.#promise ??= abortable(this.outcome(), this.#ended ? undefined : this.#signal);
    return this.#promise.then(onDone, onFailed);
  }

  /** How the work ends, whatever its signal says. */
  outcome(): Promise<SubmissionResult> {
    this.#observed = true;
    this.#work ??= new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
      if (this.#ended) this.settlePromise();
    });
    return this.#work;
  }

  private settlePromise(): void {
    const { result, error } = this.#ended as Ended;
    if (error) this.#settle?.reject(error);
    else this.#settle?.resolve(result as SubmissionResult);
  }

  waitSync(): SubmissionResult {
    this.#observed = true;
    if (!this.#ended) this.#signal?.throwIfAborted();
    if (!this.#ended) this.#queue.waitFor(this.id);
    const { result, error } = this.#ended as Ended;
    if (error) throw error;
    return result as SubmissionResult;
  }

  /** Called by the queue when the work has ended. */
  finish(ended: Ended): void {
    const { error } = ended;
    this.#ended = ended;
    this.#commands = NO_COMMANDS;
    this.settlePromise();
    if (!error) return;
    setImmediate(() => {
      if (!this.#observed)
        process.emitWarning(`a submission failed and nobody awaited it: ${error.message}`, "MlxtsWarning");
    });
  }

  toJSON(): ReturnType<api.Submission["toJSON"]> {
    const { state } = this;
    const ms = this.#ended?.result?.ms;
    return { type: "Submission", state, ...(ms !== undefined && { ms }) };
  }
}

const NO_COMMANDS: Submitted = { accesses: [], labels: [], footprint: new Footprint([]) };

/** Queues with work in flight are held here; idle ones may be collected. */
const busy = new Set<SubmissionQueue>();

/** The submissions of one device: what is recorded, in flight or failed, and which memory that touches. */
export class SubmissionQueue {
  private readonly handle: NativeDevice;
  private readonly tally: Tally;
  /** Whether every dispatch is timed and printed: `MLXTS_DEBUG` 2. */
  private readonly trace: boolean;
  /** By id, in the order of submission. */
  private readonly inFlight = new Map<number, Submission>();
  private readonly uses = new MemoryUses();
  /** Submissions that no program knows of: what they use is waited for, since nobody could await them. */
  private readonly fills = new Set<number>();
  /** What is recorded and has not been submitted. */
  readonly recorded = new RecordedWork();
  /** Memory whose contents are undefined because the submission that wrote it failed. */
  private readonly failures = new IntervalMap<Error>();

  constructor(handle: NativeDevice, tally: Tally, trace: boolean) {
    this.handle = handle;
    this.tally = tally;
    this.trace = trace;
  }

  /** Keeps a command list, in native code, for `submit`. */
  record(list: CommandList): NativeRecording {
    const recording = native().record(this.handle, list.words.array, list.words.count, list.memories);
    list.releaseBuffers();
    return recording;
  }

  submit(commands: KeptCommands, { profile = false, signal }: CommitOptions): Submission {
    const id = native().submit(this.handle, commands.native, profile || this.trace);
    return this.track(new Submission(this, id, commands, commands.origin, signal));
  }

  /** Submits a command list that runs once. */
  run(list: CommandList, { profile = false, signal }: CommitOptions): Submission {
    const { array, count } = list.words;
    const id = native().run(this.handle, array, count, list.memories, profile || this.trace);
    list.releaseBuffers();
    return this.track(new Submission(this, id, list, new Error("committed"), signal));
  }

  /** Runs the fill of a buffer that the program has not asked for. */
  fill(list: CommandList): void {
    this.fills.add(this.run(list, {}).id);
  }

  private track(submission: Submission): Submission {
    if (this.inFlight.size === 0) busy.add(this);
    this.inFlight.set(submission.id, submission);
    this.uses.begin(submission.id, submission.commands.footprint);
    this.tally.submissions++;
    return submission;
  }

  /** Called when submissions have ended; settles them in order. */
  readonly onEnded = (): void => {
    for (const outcome of native().takeEnded(this.handle)) {
      const submission = this.inFlight.get(outcome.id) as Submission;
      this.inFlight.delete(outcome.id);
      this.fills.delete(outcome.id);
      this.uses.end(outcome.id, submission.commands.footprint);
      if (this.inFlight.size === 0) {
        busy.delete(this);
        this.uses.clear();
      }
      const error = outcome.code ? failureOf(submission.commands, outcome, submission.origin) : undefined;
      if (error || this.failures.size > 0)
        for (const { writes } of submission.commands.accesses)
          for (const range of writes)
            if (error) this.failures.set(range, error);
            else this.forgetFailure(range);
      submission.finish(error ? { error } : { result: this.result(submission, outcome) });
    }
  };

  private result(submission: Submission, { milliseconds, microseconds }: NativeOutcome): SubmissionResult {
    if (!microseconds) return { ms: milliseconds };
    const dispatches = submission.commands.labels.map((label, tag) => ({ label, us: microseconds[tag] ?? 0 }));
    if (this.trace)
      dispatches.forEach(({ label, us }, i) => {
        const { reads, writes, note = "" } = submission.commands.accesses[i] as Accesses;
        const bytes = [...reads, ...writes].reduce((sum, { begin, end }) => sum + end - begin, 0);
        const speed = `${us.toFixed(1).padStart(9)} µs ${(bytes / us / 1e3).toFixed(2).padStart(8)} GB/s`;
        process.stderr.write(`mlxts ${speed}  ${label}  ${note}\n`);
      });
    return { ms: milliseconds, dispatches };
  }

  waitFor(id: number): void {
    this.tally.waits++;
    native().waitFor(this.handle, id);
    this.onEnded();
  }

  /** The last submission in flight that writes the range. */
  lastWriter(range: Range): Submission | undefined {
    const id = this.uses.last(range, "written");
    return id === undefined ? undefined : this.inFlight.get(id);
  }

  /** Throws the failure that left the contents of the range undefined, if one has. */
  assertDefined(range: Range): void {
    const failure = this.failures.first(range);
    if (failure) throw failure.value;
  }

  assertNotWritten(op: string, range: Range): void {
    this.endFill(range, "written");
    if (this.lastWriter(range))
      throw wrongValue(
        op,
        "range",
        "not be written by work in flight",
        "a range in use",
        "await the submission, or use the asynchronous read",
      );
    this.assertDefined(range);
  }

  /** Waits for a fill, if nothing else uses the range after it. */
  private endFill(range: Range, use: Use): void {
    const last = this.uses.last(range, use);
    if (last !== undefined && this.fills.has(last)) this.waitFor(last);
  }

  assertIdle(op: string, range: Range): void {
    this.endFill(range, "used");
    if (this.uses.last(range, "used") !== undefined)
      throw wrongValue(op, "range", "not be used by work in flight", "a range in use", "await the submission first");
  }

  /**
   * The range is fresh memory of the device. It may lie where another buffer lay: work that used that one has ended, though
   * the queue may not have heard of it yet, and may have failed.
   */
  startFresh(range: Range): void {
    const last = this.uses.last(range, "used");
    if (last !== undefined) this.waitFor(last);
    this.forgetFailure(range);
  }

  /** The range has been written again. */
  forgetFailure(range: Range): void {
    if (this.failures.size > 0) this.failures.delete(range);
  }
}
