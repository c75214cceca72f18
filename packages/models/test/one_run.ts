// A state that was fed token by token, to compare states after generations with.
import { compare, within } from "@mlxts/core/testing";
import { expect } from "vitest";
import { Decoder, generate, type LanguageModel, type ModelState, prefill } from "../src/index.ts";
import { bits, prompts, stateBits } from "./fixtures.ts";

export const CAPACITY = 160;

/**
 * A state that was fed a prompt in one pass and the generated tokens one by one. With `rollback` the last tokens of the
 * prompt are computed one by one, too.
 */
export async function oneRun(
  model: LanguageModel,
  prompt: readonly number[],
  generated: readonly number[],
  rollback = 0,
): Promise<ModelState> {
  const state = model.newState({ capacity: CAPACITY, rollback });
  if (prompt.length > 1) await prefill(model, state, prompt.slice(0, -1), { positions: [] });
  using decoder = new Decoder(model, state);
  for (const id of [prompt.at(-1) as number, ...generated]) await decoder.next(id);
  return state;
}

/** A text that continues a state. */
async function continued(model: LanguageModel, state: ModelState): Promise<number[]> {
  const out: number[] = [];
  const more = (prompts[0] as (typeof prompts)[number]).ids.slice(0, 5);
  for await (const id of generate(model, more, { state, maxTokens: 8, stopTokens: [] })) out.push(id);
  return out;
}

/** Two states of one model are equal to the bit; without `exact` within the bound of matrix products. */
export async function expectSame(state: ModelState, expected: ModelState, what: string, exact: boolean): Promise<void> {
  const model = state.model as LanguageModel;
  expect(state.tokens, what).toBe(expected.tokens);
  if (exact) expect(stateBits(await state.save()), what).toEqual(stateBits(await expected.save()));
  const [a] = await prefill(model, state, [7]);
  const [b] = await prefill(model, expected, [7]);
  if (exact) expect(bits(a as Float32Array), what).toBe(bits(b as Float32Array));
  const c = compare(a as Float32Array, b as Float32Array);
  expect(within(c, 2e-6, 40), `${what}: ratio ${c.ratio}`).toBe(true);
  expect(await continued(model, state), what).toEqual(await continued(model, expected));
}
