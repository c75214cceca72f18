// A model against recorded outputs: of the original model code, and of mlx-lm for its 4-bit conversion.
import type { Device } from "@mlxts/core";
import { compare, within } from "@mlxts/core/testing";
import type { Goldens } from "@mlxts/test-kit/goldens";
import { afterAll, beforeAll, expect, it } from "vitest";
import { generate, type LanguageModel, loadModel, type ModelPath, prefill } from "../src/index.ts";

/** A prompt with its outputs. */
export interface Recorded {
  ids: number[];
  /** Of the last position. */
  logits: Float32Array;
  /** The likeliest tokens that follow, 64 of them. */
  greedy: number[];
}

/** Logits of the last positions of three prompts. */
export const recordedLogits = (file: Goldens): Float32Array[] =>
  [0, 1, 2].map((i) => file.tensor(`prompt${i}.logits`).data as Float32Array);

/** The three prompts of a checkpoint. Another file may have other outputs for them. */
export function recordedPrompts(file: Goldens, outputs = file): Recorded[] {
  const integers = (from: Goldens, name: string) => Array.from(from.tensor(name).data as Int32Array);
  return recordedLogits(outputs).map((logits, i) => ({
    ids: integers(file, `prompt${i}.ids`),
    logits,
    greedy: integers(outputs, `prompt${i}.greedy`),
  }));
}

/** Logits of the last token of a prompt that is fed in pieces which end at `splits`. */
export async function lastLogits(
  model: LanguageModel,
  ids: readonly number[],
  splits: readonly number[] = [],
  path = model.paths[0] as ModelPath,
): Promise<Float32Array> {
  using state = model.newState({ capacity: ids.length });
  let logits: Float32Array | undefined;
  const borders = [0, ...splits, ids.length];
  for (const [i, begin] of borders.slice(0, -1).entries())
    [logits] = await prefill(model, state, ids.slice(begin, borders[i + 1]), { path });
  return logits as Float32Array;
}

export async function greedyTokens(model: LanguageModel, ids: readonly number[], count = 64): Promise<number[]> {
  const out: number[] = [];
  for await (const id of generate(model, ids, { maxTokens: count, stopTokens: [] })) out.push(id);
  return out;
}

interface Checkpoint {
  device: Device;
  /** Its folder, when the tests run. */
  folder: () => string;
  prompts: readonly Recorded[];
}

/** Loads the checkpoint for the tests around it. */
function loaded({ device, folder }: Checkpoint, activationDtype: "f32" | "bf16"): { model: LanguageModel } {
  const own = {} as { model: LanguageModel };
  beforeAll(async () => {
    own.model = await loadModel(device, folder(), { activationDtype });
  });
  afterAll(() => own.model.dispose());
  return own;
}

/** Logits and greedy tokens, with f32 activations. */
export function itGivesWhatIsRecorded(checkpoint: Checkpoint, bar: number): void {
  const own = loaded(checkpoint, "f32");

  it.each(checkpoint.prompts)(`last-position logits of prompt $# within ratio ${bar}`, async ({ ids, logits }) => {
    expect(compare(await lastLogits(own.model, ids), logits)).toMatchObject({
      finite: true,
      ratio: expect.toSatisfy((ratio: number) => ratio <= bar),
    });
  });

  it.each(checkpoint.prompts)("64 greedy tokens of prompt $# are identical", async ({ ids, greedy }) => {
    expect(await greedyTokens(own.model, ids)).toEqual(greedy);
  });
}

/**
 * Logits in bf16 are near the recorded ones. `inBf16`: what the original code gives in bf16, for models with experts, where
 * a rounding can choose another expert.
 */
export function itIsNearInBf16(checkpoint: Checkpoint, bar: number, inBf16?: readonly Float32Array[]): void {
  const own = loaded(checkpoint, "bf16");

  it.each(checkpoint.prompts.map((prompt, i) => ({ ...prompt, i })))(
    "bf16 activations stay near the f32 logits: prompt $#",
    async ({ ids, logits, i }) => {
      const actual = await lastLogits(own.model, ids);
      const expected = inBf16 ? [logits, inBf16[i] as Float32Array] : [logits];
      expect(Math.min(...expected.map((each) => compare(actual, each).ratio))).toBeLessThan(bar);
    },
  );
}

/** A prompt gives the same logits however it is fed: on every path, in pieces, token by token. */
export function itTakesAPromptInPieces(checkpoint: Checkpoint, long: readonly number[]): void {
  const own = loaded(checkpoint, "f32");
  const expectClose = (actual: Float32Array | undefined, expected: Float32Array, what: string) => {
    const c = compare(actual as Float32Array, expected);
    expect(within(c, 2e-6, 40), `${what}: ratio ${c.ratio}`).toBe(true);
  };

  it("all paths and token by token agree", async () => {
    const { model } = own;
    const whole = await lastLogits(model, long, [], model.stepPath);
    for (const path of model.paths) expectClose(await lastLogits(model, long, [], path), whole, `path ${path}`);
    const each = long.slice(1).map((_, i) => i + 1);
    expectClose(await lastLogits(model, long, each), whole, "token by token");
  });

  it("a split anywhere agrees with the whole", async () => {
    const { model } = own;
    const path = model.paths.at(-1) as ModelPath;
    const whole = await lastLogits(model, long, [], path);
    // A simulated GPU is slow: there only some borders are tested.
    const borders = [1, 2, 63, 64, 65, 127, 128, 129, long.length - 1];
    for (let at = 1; at < long.length; at++)
      if (!checkpoint.device.gpu || borders.includes(at))
        expectClose(await lastLogits(model, long, [at], path), whole, `split at ${at}`);
  });

  it("logits of every position asked for are those of separate prompts", async () => {
    const { model } = own;
    const ids = long.slice(0, 11);
    using state = model.newState({ capacity: ids.length });
    const [third, last] = await prefill(model, state, ids, { positions: [3, ids.length - 1] });
    expectClose(third, await lastLogits(model, ids.slice(0, 4)), "position 3");
    expectClose(last, await lastLogits(model, ids), "the last position");
  });

  it("blocks of a prompt agree with one pass", async () => {
    const { model } = own;
    using state = model.newState({ capacity: long.length });
    const [logits] = await prefill(model, state, long, { blockLength: 33 });
    expectClose(logits, await lastLogits(model, long), "blocks of 33 tokens");
  });
}
