import { type ArgumentRangeError, wrongValue } from "./errors.ts";
import { IntervalMap } from "./interval_map.ts";
import type { Accesses, Range } from "./ranges.ts";

/** What an encoder has recorded, and whether it has run. */
export class Recorded {
  state: "recording" | "finished" | "run" | "abandoned" = "recording";
  /** Only the encoder and its recording hold this object strongly: when both are collected, nobody can run it any more. */
  readonly reference = new WeakRef(this);
  private accesses: readonly Accesses[];
  private written: IntervalMap<true> | undefined;
  private sorted = 0;

  constructor(accesses: readonly Accesses[]) {
    this.accesses = accesses;
  }

  /** Dispatches recorded so far. */
  get dispatches(): number {
    return this.accesses.length;
  }

  /** The recording has got its final form. */
  replace(accesses: readonly Accesses[]): void {
    this.accesses = accesses;
    this.written = undefined;
    this.sorted = 0;
  }

  /** What the dispatches recorded so far write. It is sorted when it is asked for, so that recording costs nothing. */
  private writtenSoFar(): IntervalMap<true> {
    this.written ??= new IntervalMap();
    for (; this.sorted < this.accesses.length; this.sorted++)
      for (const write of (this.accesses[this.sorted] as Accesses).writes) this.written.set(write, true);
    return this.written;
  }

  /** Whether a dispatch recorded so far writes to the range, and nobody else has written it since. */
  writes(range: Range): boolean {
    return this.writtenSoFar().first(range) !== undefined;
  }

  /** The host or other work has written the range: it can be read until a further write to it is recorded. */
  overwritten(range: Range): void {
    this.writtenSoFar().delete(range);
  }
}

/** What is known of a tensor that an encoder handed out; its views share this. */
export interface Output {
  readonly encoder: WeakRef<Recorded>;
  /** Whether the host or another encoder has written it. */
  written: boolean;
}

/** What may have been handed out: a tensor. */
interface HandedOut {
  readonly output: Output | undefined;
}

/** Notes a write to a tensor, by the host or by an encoder. */
export function noteWrite({ output }: HandedOut, encoder?: Recorded): void {
  if (output && output.encoder !== encoder?.reference) output.written = true;
}

function notRun(op: string, argument: string, call: string): ArgumentRangeError {
  return wrongValue(op, argument, "have been computed", "what is recorded and has not run", `call ${call} first`);
}

/** What is recorded on a device and has not run, so that nobody reads results that do not exist yet. */
export class RecordedWork {
  private readonly encoders = new Set<WeakRef<Recorded>>();
  /** When there are more encoders than this, those that were collected are removed. */
  private limit = 64;

  /** An encoder has recorded its first dispatch. */
  begin(recorded: Recorded): void {
    this.encoders.add(recorded.reference);
    if (this.encoders.size <= this.limit) return;
    for (const reference of this.encoders) if (!reference.deref()) this.encoders.delete(reference);
    this.limit = Math.max(64, 2 * this.encoders.size);
  }

  end(recorded: Recorded, state: "finished" | "run" | "abandoned"): void {
    recorded.state = state;
    this.encoders.delete(recorded.reference);
  }

  /** The host, or work that is submitted now, writes the ranges: reading them is allowed again. */
  overwrite(writes: readonly Range[]): void {
    for (const reference of this.encoders) {
      const recorded = reference.deref();
      if (recorded) for (const range of writes) recorded.overwritten(range);
    }
  }

  /** Work has been submitted. */
  run(accesses: readonly Accesses[]): void {
    if (this.encoders.size > 0) for (const { writes } of accesses) this.overwrite(writes);
  }

  /** Refuses to read a range that an encoder which is still recording will write. */
  assertRun(op: string, argument: string, range: Range): void {
    for (const reference of this.encoders)
      if (reference.deref()?.writes(range)) throw notRun(op, argument, "encoder.commit()");
  }

  /** The same for a tensor; also refuses an output of a finished recording that was never replayed. */
  assertComputed(op: string, tensor: HandedOut & { readonly range: Range }): void {
    this.assertRun(op, "tensor", tensor.range);
    const { output } = tensor;
    if (!output || output.written) return;
    const encoder = output.encoder.deref();
    if (encoder?.state === "finished" && encoder.writes(tensor.range)) throw notRun(op, "tensor", "recording.replay()");
  }
}
