import type { Arena, CommandEncoder, Recording, Submission, SubmissionResult, Tensor } from "@mlxts/core";
import { wrongKind, wrongValue } from "@mlxts/core";
import { checkInteger } from "./check_integer.ts";
import { checkPath, type LanguageModel } from "./language_model.ts";
import { recordLayers } from "./layers.ts";
import { OPTIMIZE_PROMPT } from "./optimize.ts";
import type { ModelPath } from "./pass.ts";
import type { PassSnapshots, PrefixCache } from "./prefix_cache.ts";
import type { ModelState } from "./state.ts";
import { PassTokens } from "./tokens.ts";

export interface FeedOptions {
  path?: ModelPath | undefined;
  blockLength?: number | undefined;
  /** For each prompt the positions whose logits are wanted. */
  positions: readonly (readonly number[])[];
  cache?: PrefixCache | undefined;
  signal?: AbortSignal | undefined;
  /** The most tokens of a pass, of all sequences together. Default `MAX_PASS_TOKENS`. */
  passTokens?: number;
}

/**
 * The most tokens of a pass, of all sequences together. Scratch and logits of a pass grow with them: a model of 4B
 * parameters takes 70 KB of scratch for each, one with many experts and heads 400 KB.
 */
const MAX_PASS_TOKENS = 8192;
/** Numbers of one tensor that all kernels can count. */
const MAX_ELEMENTS = 2 ** 31 - 1;

/** One prompt and how it is cut into passes. */
interface PromptPlan {
  ids: readonly number[];
  positions: readonly number[];
  /** Tokens that the cache restored. */
  restored: number;
  /** Where each pass ends, ascending; the first begins after the restored tokens. */
  ends: number[];
}

/** Tokens `begin` … `end − 1` of a prompt: its part of one pass. */
interface Part {
  begin: number;
  end: number;
}

/** A call of `feed`: what all of its passes share. */
interface Feeding {
  model: LanguageModel;
  state: ModelState;
  path: ModelPath;
  cache: PrefixCache | undefined;
  plans: readonly PromptPlan[];
  /** For each prompt its logits by position, filled in by the passes. */
  logits: readonly Map<number, Float32Array>[];
}

/** Copies of lists of positions that lie within their prompts. */
function checkPositions(
  op: string,
  prompts: readonly number[][],
  positions: readonly (readonly number[])[],
): number[][] {
  return prompts.map(({ length }, at) => {
    const name = prompts.length === 1 ? "positions" : `positions[${at}]`;
    const wanted = positions[at] as readonly number[];
    if (!Array.isArray(wanted)) throw wrongKind(op, name, "be an array of positions", wanted);
    const rule = length > 0 ? `be integers from 0 to ${length - 1}` : "be empty, as its prompt";
    return Array.from(wanted as number[], (position) => {
      if (Number.isInteger(position) && position >= 0 && position < length) return position;
      throw wrongValue(op, name, rule, position);
    });
  });
}

/**
 * Where the passes over a prompt end: at every multiple of `blockLength`. With a cache also at the last multiple of
 * `every`, so that the tokens after it are computed in the same way whether the cache had those before it or not.
 */
function passEnds(length: number, restored: number, blockLength: number, every: number | undefined): number[] {
  const kept = every ? Math.floor(length / every) * every : 0;
  const ends: number[] = [];
  for (let at = restored; at < length; ) {
    const next = Math.min(length, (Math.floor(at / blockLength) + 1) * blockLength);
    at = at < kept ? Math.min(next, kept) : next;
    ends.push(at);
  }
  return ends;
}

const NO_PART: Part = { begin: 0, end: 0 };

/** A prompt's part of the pass that is `fromEnd` (−1, −2, …) from the last: all prompts end in the last pass. */
function partOf({ restored, ends }: PromptPlan, fromEnd: number): Part {
  const end = ends.at(fromEnd);
  return end === undefined ? NO_PART : { begin: ends.at(fromEnd - 1) ?? restored, end };
}

/**
 * Sequences that go through their passes together: as many, one after the other, as have at most `passTokens` tokens in
 * each pass. Where a prompt's passes end does not depend on it, so its results do not either.
 */
function groupsOf(plans: readonly PromptPlan[], passTokens: number): ReadonlySet<number>[] {
  const groups: Set<number>[] = [];
  let tokens = Number.POSITIVE_INFINITY;
  for (const [at, { restored, ends }] of plans.entries()) {
    const own = ends.reduce((most, end, i) => Math.max(most, end - (ends[i - 1] ?? restored)), 0);
    tokens += own;
    if (tokens > passTokens) {
      groups.push(new Set());
      tokens = own;
    }
    groups.at(-1)?.add(at);
  }
  return groups;
}

/**
 * Shortens the last pass, which all sequences make together when its last tokens can be rolled back: a log has room for one
 * pass. It keeps the tokens that a rollback can reach.
 */
function shortenLast(plans: readonly PromptPlan[], passTokens: number, maxRollback: number): void {
  const lasts = plans.map((plan) => partOf(plan, -1)).map(({ begin, end }) => end - begin);
  if (lasts.reduce((a, b) => a + b, 0) <= passTokens) return;
  const active = lasts.filter((tokens) => tokens > 0).length;
  const most = Math.max(maxRollback, Math.floor(passTokens / active));
  for (const [at, { ids, ends }] of plans.entries())
    if ((lasts[at] as number) > most) ends.splice(-1, 0, ids.length - most);
}

/** The rows of a pass whose logits are wanted: prompt, position in it, and row among all tokens of the pass. */
function wantedRows(plans: readonly PromptPlan[], parts: readonly Part[]) {
  const wanted: { at: number; position: number; row: number }[] = [];
  let row = 0;
  for (const [at, { begin, end }] of parts.entries()) {
    for (const position of new Set(plans[at]?.positions))
      if (position >= begin && position < end) wanted.push({ at, position, row: row + position - begin });
    row += end - begin;
  }
  return wanted;
}

/** What the passes of a prompt that are recorded alike agree in; all else lies in their tensors. */
interface Pass {
  readonly parts: readonly Part[];
  readonly counts: readonly number[];
  readonly wanted: ReturnType<typeof wantedRows>;
  /** Whether its last tokens can be rolled back. */
  readonly log: boolean;
}

function passOf({ state, plans }: Feeding, fromEnd: number, group: ReadonlySet<number>): Pass {
  const parts = plans.map((plan, at) => (group.has(at) ? partOf(plan, fromEnd) : NO_PART));
  const counts = parts.map(({ begin, end }) => end - begin);
  return { parts, counts, wanted: wantedRows(plans, parts), log: fromEnd === -1 && state.maxRollback > 0 };
}

/** All passes in their order. One that can be rolled back is the last of all sequences. */
function passesOf(feeding: Feeding, groups: readonly ReadonlySet<number>[]): Pass[] {
  const { state, plans } = feeding;
  const longest = Math.max(...plans.map(({ ends }) => ends.length));
  const together = state.maxRollback > 0 ? 1 : 0;
  const passes: Pass[] = [];
  for (const group of groups)
    for (let fromEnd = -longest; fromEnd < -together; fromEnd++) passes.push(passOf(feeding, fromEnd, group));
  if (together) passes.push(passOf(feeding, -1, new Set(plans.keys())));
  return passes.filter(({ counts }) => counts.some((count) => count > 0));
}

const isLike = (a: Pass, b: Pass | undefined): boolean =>
  a.log === b?.log &&
  a.counts.join() === b.counts.join() &&
  a.wanted.map(({ row }) => row).join() === b.wanted.map(({ row }) => row).join();

/** Waits for all of them, also when one fails: nothing is in flight then. */
async function all(parts: readonly PromiseLike<SubmissionResult>[]): Promise<SubmissionResult> {
  await Promise.allSettled(parts);
  let ms = 0;
  for (const part of parts) ms += (await part).ms;
  return { ms };
}

/** A pass with its memory: it runs once, or is replayed for all the like passes that follow each other. */
class RecordedPass {
  readonly pass: Pass;
  private readonly feeding: Feeding;
  private readonly arena: Arena;
  /** Whether it will run again. */
  private readonly again: boolean;
  private readonly owned: Disposable[] = [];
  private readonly tokens: PassTokens;
  private readonly kept: PassSnapshots | undefined;
  /** Of a pass that runs again, once it has run. */
  private readonly recordings: Recording[] = [];
  private values: Tensor | undefined;
  private hasRun = false;

  constructor(feeding: Feeding, pass: Pass, arena: Arena, again: boolean) {
    const { model, state, cache } = feeding;
    const { counts, log } = pass;
    this.feeding = feeding;
    this.pass = pass;
    this.arena = arena;
    this.again = again;
    try {
      this.tokens = this.own(new PassTokens(model.device, counts));
      // A pass with a log may compute its last tokens one by one: the states in it then have other bits than without.
      this.kept = log || !cache ? undefined : this.own(cache.snapshots(state, counts));
    } catch (error) {
      this.dispose();
      throw error;
    }
  }

  /** Records the pass; each encoder that `full` takes has what comes after that of the one before. */
  private record(full: (encoder: CommandEncoder, keep?: readonly Tensor[]) => void): void {
    const { arena, tokens, kept } = this;
    const { model, state, path } = this.feeding;
    const { log, wanted } = this.pass;
    const options = { path, log, snapshots: kept?.snapshots };
    const whole = model.device.encoder({ arena, optimize: OPTIMIZE_PROMPT });
    // After `full` it has no effect.
    using _ = whole;
    // An encoder that optimizes shows no arena; with `MLXTS_FUSE=0` none does.
    const layered = whole.arena ? undefined : model.layered(state, tokens.tokens, options);
    const { hidden, encoder } = layered
      ? recordLayers(layered, { state, tokens: tokens.tokens, options }, arena, full)
      : { hidden: model.encode(whole, state, tokens.tokens, options), encoder: whole };
    using _last = encoder;
    const rows = wanted.map(({ row }) => row);
    this.values = rows.length > 0 ? model.encodeLogits(encoder, hidden, rows) : undefined;
    full(encoder, this.values ? [this.values] : []);
  }

  /** Hands all of the pass to the device, the first time while it is recorded. */
  private submit(): PromiseLike<SubmissionResult> {
    const begun: Submission[] = [];
    try {
      if (this.hasRun) for (const recording of this.recordings) begun.push(recording.replay());
      else
        this.record((encoder, keep = []) => {
          if (!this.again) begun.push(encoder.commit({ keep }));
          else {
            const recording = this.own(encoder.finish({ keep }));
            this.recordings.push(recording);
            begun.push(recording.replay());
          }
        });
      this.hasRun = true;
      return all(begun);
    } catch (error) {
      // Unless some of it runs already, nothing has happened to the state.
      if (begun.length === 0) throw error;
      return all([...begun, Promise.reject(error)]);
    }
  }

  /** Runs it for a pass like the one that it was made for. */
  async run({ parts, counts, wanted, log }: Pass): Promise<void> {
    const { state, path, cache, plans, logits } = this.feeding;
    this.tokens.write(
      state,
      plans.map(({ ids }, at) => ids.slice(parts[at]?.begin, parts[at]?.end)),
    );
    await state.advance(this.submit(), counts, log);
    for (const [i, { at, position }] of wanted.entries())
      logits[at]?.set(position, (await this.values?.slice(i, i + 1).read()) as Float32Array);
    if (this.kept) await cache?.keep(state, this.kept, plans, parts, path);
  }

  private own<T extends Disposable>(object: T): T {
    this.owned.push(object);
    return object;
  }

  dispose(): void {
    for (const each of this.owned.splice(0).reverse()) each[Symbol.dispose]();
  }
}

/**
 * Feeds each sequence of a state its prompt; the caller has begun the use of the state. The result has for each prompt the
 * logits of its positions, and the number of tokens that the cache restored. `argument` is the caller's name of the
 * prompts, for errors.
 */
export async function feed(
  op: string,
  model: LanguageModel,
  state: ModelState,
  prompts: readonly number[][],
  options: FeedOptions,
  argument: string,
): Promise<{ logits: Float32Array[][]; restored: number[] }> {
  const { blockLength = 512, cache, signal, passTokens = MAX_PASS_TOKENS } = options;
  const path = checkPath(op, model, options.path);
  checkInteger(op, "blockLength", blockLength, 1);
  const positions = checkPositions(op, prompts, options.positions);
  const lengths = prompts.map(({ length }) => length);
  state.assertRoom(op, lengths, argument);
  cache?.check(op, state, prompts, blockLength);

  const most = Math.min(passTokens, Math.floor(MAX_ELEMENTS / model.vocabSize));
  // With a cache a pass ends where the cache keeps states.
  const unit = cache?.every ?? 1;
  const block = Math.min(blockLength, Math.max(1, Math.floor(most / unit)) * unit);
  const plans = prompts.map((ids, at): PromptPlan => {
    const wanted = positions[at] as number[];
    // Tokens whose logits are wanted, and the last one where it may be rolled back, must be computed.
    const kept = Math.min(ids.length, ...wanted, ...(state.maxRollback > 0 ? [ids.length - 1] : []));
    const restored = cache && ids.length > 0 ? cache.restore(state, at, ids.slice(0, Math.max(0, kept)), path) : 0;
    return { ids, positions: wanted, restored, ends: passEnds(ids.length, restored, block, cache?.every) };
  });
  if (state.maxRollback > 0) shortenLast(plans, most, state.maxRollback);
  const logits = plans.map(() => new Map<number, Float32Array>());
  const feeding = { model, state, path, cache, plans, logits };
  const arena = model.device.arena(1 << 22, { grow: true });
  let recorded: RecordedPass | undefined;
  try {
    const passes = passesOf(feeding, groupsOf(plans, most));
    for (const [i, pass] of passes.entries()) {
      signal?.throwIfAborted();
      if (!recorded || !isLike(pass, recorded.pass)) {
        recorded?.dispose();
        arena.reset();
        recorded = new RecordedPass(feeding, pass, arena, isLike(pass, passes[i + 1]));
      }
      await recorded.run(pass);
    }
  } finally {
    recorded?.dispose();
    arena.dispose();
  }
  signal?.throwIfAborted();
  return {
    logits: plans.map((plan, at) => plan.positions.map((position) => logits[at]?.get(position) as Float32Array)),
    restored: plans.map(({ restored }) => restored),
  };
}
