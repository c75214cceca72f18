// States, and for each of their sequences a list of the tokens that it should hold.
import { BARS, compare, type Random, within } from "@mlxts/core/testing";
import { expect } from "vitest";
import {
  Decoder,
  type Draft,
  type LanguageModel,
  type ModelPath,
  type ModelState,
  PrefixCache,
  prefill,
  type SavedState,
} from "../src/index.ts";
import { stateBits } from "./fixtures.ts";

type Bits = ReturnType<typeof stateBits>;

export interface Sequence {
  owner: Owner;
  at: number;
  tokens: number[];
  /** Tokens that can be rolled back; undefined after passes with guesses, where it is not known. */
  left: number | undefined;
  bits: Bits;
}

export interface Owner {
  name: string;
  state: ModelState;
  decoder: Decoder;
  sequences: Sequence[];
}

export interface Kept {
  saved: SavedState;
  tokens: number[];
  bits: Bits;
}

/** The sequences that an operation changed: it fed them, or left them with these bits. */
export type Touched = Map<Sequence, "fed" | Bits>;

export class World {
  readonly owners: Owner[] = [];
  readonly kept: Kept[] = [];
  readonly model: LanguageModel;
  readonly random: Random;
  /** It holds a few blocks, and drops the others. */
  readonly cache: PrefixCache;
  /** Texts with which prompts begin. */
  readonly beginnings: readonly (readonly number[])[];

  private constructor(model: LanguageModel, random: Random) {
    this.model = model;
    this.random = random;
    const every = 16 * Math.ceil(model.snapshotUnit / 16);
    this.cache = new PrefixCache(model, { every, maxBytes: 1 << (random.below(2) === 0 ? 21 : 30) });
    this.beginnings = [0, 1].map(() => this.ids(200, 200));
  }

  static async create(
    model: LanguageModel,
    random: Random,
    shapes: readonly { capacity: number; sequences: number; rollback: number }[],
  ): Promise<World> {
    const world = new World(model, random);
    for (const [i, shape] of shapes.entries()) {
      const state = model.newState(shape);
      const owner: Owner = { name: `state ${i}`, state, decoder: new Decoder(model, state), sequences: [] };
      for (let at = 0; at < shape.sequences; at++)
        owner.sequences.push({ owner, at, tokens: [], left: 0, bits: stateBits(await state.save(at)) });
      world.owners.push(owner);
    }
    return world;
  }

  get sequences(): Sequence[] {
    return this.owners.flatMap(({ sequences }) => sequences);
  }

  pick<T>(list: readonly T[]): T {
    return list[this.random.below(list.length)] as T;
  }

  path(): ModelPath {
    return this.pick(this.model.paths);
  }

  ids(most: number, least = 1): number[] {
    return Array.from({ length: least + this.random.below(most - least + 1) }, () => this.random.below(4096));
  }

  /** The text that should follow a prompt: greedy steps in another state. */
  async oracle({ owner, at, tokens }: Sequence, prompt: readonly number[], count: number): Promise<number[]> {
    using scratch = this.model.newState({ capacity: tokens.length + prompt.length + count });
    scratch.restore(await owner.state.save(at));
    if (prompt.length > 1) await prefill(this.model, scratch, prompt.slice(0, -1), { positions: [] });
    using decoder = new Decoder(this.model, scratch);
    const out: number[] = [];
    for (let id = prompt.at(-1) as number; out.length < count; out.push(id)) id = await decoder.next(id);
    return out;
  }

  /** Guesses this text after a prompt; some tokens are wrong. */
  draft(prompt: readonly number[], text: readonly number[]): Draft {
    const wrong = text.map(() => this.random.below(3) === 0);
    return (all, most) => {
      const from = all.length - prompt.length;
      return text.slice(from, from + most).map((id, i) => (wrong[from + i] ? (id + 1) % 4096 : id));
    };
  }

  /** Every sequence holds its tokens; sequences that were not touched have the bits that they had. */
  async verify(what: string, touched: Touched): Promise<void> {
    for (const { name, state, sequences } of this.owners) {
      expect(state.lengths, `${what}: lengths of ${name}`).toEqual(sequences.map(({ tokens }) => tokens.length));
      for (const sequence of sequences) {
        const where = `${what}: sequence ${sequence.at} of ${name}`;
        const saved = await state.save(sequence.at);
        const bits = stateBits(saved);
        const kind = touched.get(sequence);
        if (kind === "fed") await this.compare(where, saved, sequence.tokens);
        else expect(bits, where).toEqual(kind ?? sequence.bits);
        sequence.bits = bits;
      }
    }
  }

  /** A saved state and a fresh one that is fed the tokens give the same logits; roundings of different kernels add up. */
  private async compare(where: string, saved: SavedState, tokens: readonly number[]): Promise<void> {
    using copy = this.model.newState({ capacity: tokens.length + 1 });
    copy.restore(saved);
    const probe = 17;
    const [logits] = await prefill(this.model, copy, [probe]);
    using fresh = this.model.newState({ capacity: tokens.length + 1 });
    const [expected] = await prefill(this.model, fresh, [...tokens, probe], {
      path: this.model.stepPath,
    });
    const c = compare(logits as Float32Array, expected as Float32Array);
    expect(within(c, BARS.H.f32, BARS.H.spread), `${where}: ratio ${c.ratio}`).toBe(true);
  }

  dispose(): void {
    for (const { state, decoder } of this.owners) {
      decoder.dispose();
      state.dispose();
    }
  }

  [Symbol.dispose](): void {
    this.dispose();
  }
}
