import { type ArgumentRangeError, wrongValue } from "./errors.ts";
import { IntervalMap } from "./interval_map.ts";
import type { Accesses, Range } from "./ranges.ts";

/** What an encoder has recorded, until it has run. */
export class Recorded {
  state: "recording" | "finished" | "run" | "abandoned" = "recording";
  /** Held weakly by everything but the encoder and its recording: what nobody can run any more is forgotten. */
  readonly reference = new WeakRef(this);
  private readonly accesses: readonly Accesses[];
  private written: IntervalMap<true> | undefined;
  private sorted = 0;

  constructor(accesses: readonly Accesses[]) {
    this.accesses = accesses;
  }

  /** What the dispatches recorded so far write. Sorted when asked for: recording costs nothing. */
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

  /** Somebody else has written the range: until it is recorded again, it can be read. */
  overwritten(range: Range): void {
    this.writtenSoFar().delete(range);
  }
}

/** What is known of a tensor that an encoder handed out; its views share this. */
interface Output {
  encoder: WeakRef<Recorded>;
  /** Whether the host or another encoder has written it. */
  written: boolean;
}

/** Of tensors. */
const outputs = new WeakMap<object, Output>();

/** The tensor was handed out by an encoder: until that has run, it holds nothing. */
export function handOut<T extends object>(tensor: T, { reference }: Recorded): T {
  outputs.set(tensor, { encoder: reference, written: false });
  return tensor;
}

/** The view shows elements of the tensor: what is known of one holds for both. */
export function shareOutput<T extends object>(view: T, tensor: object): T {
  const output = outputs.get(tensor);
  if (output) outputs.set(view, output);
  return view;
}

/** The tensor is written by the host, or by another encoder than its own. */
export function noteWrite(tensor: object, encoder?: Recorded): void {
  const output = outputs.get(tensor);
  if (output && output.encoder !== encoder?.reference) output.written = true;
}

function notRun(op: string, argument: string, call: string): ArgumentRangeError {
  return wrongValue(op, argument, "have been computed", "what is recorded and has not run", `call ${call} first`);
}

/** What is recorded on a device and has not run, so that nobody reads results which are not there yet. */
export class RecordedWork {
  private readonly encoders = new Set<WeakRef<Recorded>>();
  /** With more encoders than this, those that were lost are taken out. */
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

  /** The host, or work that runs now, writes the ranges: whoever reads them gets that, not what is still recorded. */
  overwrite(writes: readonly Range[]): void {
    for (const reference of this.encoders) {
      const recorded = reference.deref();
      if (recorded) for (const range of writes) recorded.overwritten(range);
    }
  }

  /** Work that is submitted writes. */
  run(accesses: readonly Accesses[]): void {
    if (this.encoders.size > 0) for (const { writes } of accesses) this.overwrite(writes);
  }

  /** Refuses a range that an encoder, still recording, has recorded a write to. */
  assertRun(op: string, argument: string, range: Range): void {
    for (const reference of this.encoders)
      if (reference.deref()?.writes(range)) throw notRun(op, argument, "encoder.commit()");
  }

  /** The same of a tensor; also one that only a finished recording writes to, which was never replayed. */
  assertComputed(op: string, tensor: { readonly range: Range }): void {
    this.assertRun(op, "tensor", tensor.range);
    const output = outputs.get(tensor);
    if (!output || output.written) return;
    const encoder = output.encoder.deref();
    if (encoder?.state === "finished" && encoder.writes(tensor.range)) throw notRun(op, "tensor", "recording.replay()");
  }
}
