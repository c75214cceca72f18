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
  /** Its contents on the host: ids, positions, places, `start`, `lengths`, `cuSeqlens`. */
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
    let border = 0;
    for (let at = 0; at < sequences; at++) {
      border += counts[at] as number;
      this.host[3 * total + 2 * sequences + at + 1] = border;
    }
  }

  /** Writes the next tokens of each sequence of `state`; `drawn`: how many each sequence has drawn. */
  write(state: ModelState, batch: readonly (readonly number[])[], drawn?: readonly number[]): void {
    const { host } = this;
    const total = this.tokens.ids.size;
    let row = 0;
    for (let at = 0; at < batch.length; at++) {
      const ids = batch[at] as readonly number[];
      const start = state.length(at);
      for (let i = 0; i < ids.length; i++, row++) {
        host[row] = ids[i] as number;
        host[total + row] = start + i;
        host[2 * total + row] = (drawn?.[at] ?? 0) + i;
      }
      host[3 * total + at] = start;
      host[3 * total + batch.length + at] = start + ids.length;
    }
    this.words.write(host);
  }

  dispose(): void {
    this.words.dispose();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
