import type { Device, Tensor } from "@mlxts/core";
import { wrongKind, wrongValue } from "@mlxts/core";
import type { LanguageModel } from "./language_model.ts";
import type { Tokens } from "./pass.ts";
import type { ModelState } from "./state.ts";

/** A checked copy of a list of token ids; an empty one is refused unless `optional`. */
export function checkIds(
  op: string,
  model: Pick<LanguageModel, "vocabSize">,
  ids: readonly number[],
  argument = "ids",
  optional = false,
): number[] {
  if (!Array.isArray(ids)) throw wrongKind(op, argument, "be an array of token ids", ids);
  if (ids.length === 0 && !optional) throw wrongValue(op, argument, "have at least one token", ids);
  const copy: number[] = [];
  for (let at = 0; at < ids.length; at++) {
    const id: unknown = ids[at];
    if (!Number.isInteger(id) || (id as number) < 0 || (id as number) >= model.vocabSize)
      throw wrongValue(
        op,
        argument,
        `be integers from 0 to ${model.vocabSize - 1}`,
        `${typeof id === "object" ? typeof id : String(id)} at position ${at}`,
      );
    copy.push(id as number);
  }
  return copy;
}

/** Whether all sequences have equally many tokens, so that tensors can be [sequences, tokens, ...]. */
export const areEqual = (counts: readonly number[]): boolean => counts.every((count) => count === counts[0]);

/** Neighboring sequences of a pass with equally many tokens: an op can take them together. */
export interface Run {
  /** Their part of a tensor with numbers [...dims] for each token of the pass: [sequences, tokens, ...dims]. */
  rows(tensor: Tensor, ...dims: number[]): Tensor;
  /** Their part of a tensor whose first axis counts sequences. */
  own(tensor: Tensor): Tensor;
}

/** The runs of a pass; sequences without tokens are in none. */
export function runsOf({ counts, ids }: Tokens): Run[] {
  const runs: { sequence: number; sequences: number; tokens: number; row: number }[] = [];
  let row = 0;
  for (const [sequence, tokens] of counts.entries()) {
    const last = runs.at(-1);
    if (last?.tokens === tokens && last.sequence + last.sequences === sequence) last.sequences++;
    else if (tokens > 0) runs.push({ sequence, sequences: 1, tokens, row });
    row += tokens;
  }
  return runs.map(({ sequence, sequences, tokens, row }) => ({
    rows: (tensor, ...dims) => tensor.view((row * tensor.size) / ids.size, [sequences, tokens, ...dims]),
    own: (tensor) => tensor.slice(sequence, sequence + sequences),
  }));
}

/** The tensors of a pass, all in one buffer that one call writes. */
export class PassTokens {
  readonly counts: readonly number[];
  readonly tokens: Tokens;
  /** u32 [T]: for each token its place in the random stream of its sequence. */
  readonly places: Tensor;
  private readonly words: Tensor<"i32">;
  /** What changes from pass to pass besides the ids: positions, places, `start`, `lengths`. */
  private readonly moving: Tensor<"i32">;
  /** The contents of `words` on the host: ids, `moving`, `cuSeqlens`. */
  private readonly host: Int32Array;

  constructor(device: Device, counts: readonly number[]) {
    const total = counts.reduce((sum, count) => sum + count, 0);
    const sequences = counts.length;
    const size = 3 * total + 3 * sequences + 1;
    this.counts = counts;
    this.words = device.tensor("i32", [size]);
    this.host = new Int32Array(size);
    const part = (offset: number, size: number) => this.words.view(offset, [size]);
    this.tokens = {
      counts,
      ids: part(0, total).cast("u32"),
      positions: part(total, total),
      start: part(3 * total, sequences),
      lengths: part(3 * total + sequences, sequences),
      cuSeqlens: part(3 * total + 2 * sequences, sequences + 1),
    };
    this.places = part(2 * total, total).cast("u32");
    this.moving = part(total, 2 * total + 2 * sequences);
    let border = 0;
    for (let at = 0; at < sequences; at++) {
      border += counts[at] as number;
      this.host[3 * total + 2 * sequences + at + 1] = border;
    }
  }

  /** Writes the next tokens of each sequence of `state`; `drawn`: how many each sequence has drawn. */
  write(state: ModelState, batch: readonly (readonly number[])[], drawn?: readonly number[]): void {
    let row = 0;
    for (const ids of batch) for (const id of ids) this.host[row++] = id;
    this.move(state.lengths, drawn);
    this.words.write(this.host);
  }

  /** The same for ids that the pass in flight leaves where this one takes them: after it each sequence has `lengths`. */
  follow(lengths: readonly number[], drawn: readonly number[]): void {
    this.move(lengths, drawn);
    const { size } = this.tokens.ids;
    this.moving.write(this.host.subarray(size, size + this.moving.size));
  }

  private move(lengths: readonly number[], drawn?: readonly number[]): void {
    const { host, counts } = this;
    const total = this.tokens.ids.size;
    let row = 0;
    for (let at = 0; at < counts.length; at++) {
      const count = counts[at] as number;
      const start = lengths[at] as number;
      for (let i = 0; i < count; i++, row++) {
        host[total + row] = start + i;
        host[2 * total + row] = (drawn?.[at] ?? 0) + i;
      }
      host[3 * total + at] = start;
      host[3 * total + counts.length + at] = start + count;
    }
  }

  dispose(): void {
    this.words.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
