// Random sequences of all operations on states, compared with plain lists of tokens. Seeds are fixed.
import { Random } from "@mlxts/core/testing";
import { unpackedCheckpoint } from "@mlxts/test-kit/goldens";
import { repeated } from "@mlxts/test-kit/rings";
import { expect, it } from "vitest";
import { type Ending, generate, generateBatch, prefill, prefillBatch } from "../src/index.ts";
import { openOnCpu, tiny } from "./fixtures.ts";
import { type Owner, type Sequence, type Touched, World } from "./state_world.ts";

/** Models with recurrent states, without and with experts, and one with latent caches. */
const models = await Promise.all(
  [tiny, unpackedCheckpoint("tiny-qwen3-next"), unpackedCheckpoint("tiny-deepseek-v3")].map(
    async (folder) => (await openOnCpu(folder)).model,
  ),
);

const room = ({ owner, tokens }: Sequence) => owner.state.capacity - tokens.length;
const fed = (sequences: readonly Sequence[]): Touched => new Map(sequences.map((sequence) => [sequence, "fed"]));

/** Adds tokens that passes of `block` tokens fed. */
function append(sequence: Sequence, tokens: readonly number[], block = 512): void {
  sequence.tokens.push(...tokens);
  const ofLastPass = tokens.length === 0 ? 0 : ((tokens.length - 1) % block) + 1;
  sequence.left = Math.min(ofLastPass, sequence.owner.state.maxRollback);
}

/** Calls while another one is in progress are refused. */
async function disturb(world: World, { state, decoder, sequences }: Owner): Promise<void> {
  const single = sequences.length === 1;
  const call = world.pick([
    () => state.reset(),
    () => state.restore({ tokens: 0, tensors: {} }),
    () => state.save(),
    () => state.rollback(sequences.map(() => 0)),
    () => (single ? decoder.next(3) : decoder.nextBatch(sequences.map(() => 3))),
    () =>
      prefillBatch(
        world.model,
        state,
        sequences.map(() => [1]),
      ),
  ]);
  let error: unknown;
  try {
    await call();
  } catch (caught) {
    error = caught;
  }
  expect(error).toMatchObject({ code: "Busy" });
}

/** What the operations of all tests have met, so that none is for nothing. */
const counted = { canceled: 0, restored: 0 };

type Operation = (world: World, owner: Owner) => Promise<Touched>;

const feedPrompts: Operation = async (world, owner) => {
  const { state, sequences } = owner;
  const { random } = world;
  const prompts = sequences.map((sequence) =>
    random.below(4) === 0 ? [] : world.ids(Math.max(1, Math.min(30, room(sequence)))),
  );
  if (prompts.every((ids) => ids.length === 0)) prompts[0] = world.ids(3);
  const blockLength = world.pick([4, 16, 512]);
  const options = { path: world.path(), blockLength };
  const controller = new AbortController();
  const canceled = random.below(4) === 0;
  const running = prefillBatch(world.model, state, prompts, { ...options, signal: controller.signal });
  if (prompts.some((ids, at) => ids.length > room(sequences[at] as Sequence))) {
    await expect(running).rejects.toThrow("must fit the context of");
    return new Map();
  }
  if (random.below(2) === 0) await disturb(world, owner);
  if (!canceled) await running;
  else {
    const later = random.below(3);
    if (later === 0) controller.abort();
    else setTimeout(() => controller.abort(), later);
    await running.then(
      () => expect(later).toBeGreaterThan(0),
      (error) => expect(error).toBe(controller.signal.reason),
    );
  }
  const ran = sequences.map((sequence) => state.length(sequence.at) - sequence.tokens.length);
  const isDone = prompts.every((ids, at) => ran[at] === ids.length);
  expect(isDone || canceled).toBe(true);
  for (const [at, sequence] of sequences.entries()) {
    append(sequence, (prompts[at] as number[]).slice(0, ran[at]), blockLength);
    // Only the last pass of a call has a log.
    if (!isDone && ran.some((tokens) => tokens > 0)) sequence.left = 0;
  }
  if (!isDone) counted.canceled++;
  return fed(sequences.filter((_, at) => ran[at]));
};

/** Feeds empty sequences prompts that begin alike, with a cache. */
const feedCached: Operation = async (world, { state, sequences }) => {
  const { random, model, cache } = world;
  const { every } = cache;
  const prompts = sequences.map(() => {
    const most = state.capacity - 2;
    const least = Math.min(every - 2, most);
    const length = least + random.below(most - least + 1);
    return random.below(4) === 0 ? [] : [...world.pick(world.beginnings).slice(0, length), ...world.ids(2)];
  });
  if (prompts.every((ids) => ids.length === 0)) return new Map();
  const path = world.path();
  for (const [at, ids] of prompts.entries()) {
    if (ids.length === 0) continue;
    state.reset(at);
    (sequences[at] as Sequence).tokens = [];
    if (cache.match(ids, path) > 0) counted.restored++;
  }
  await prefillBatch(model, state, prompts, { path, cache, blockLength: every });
  for (const [at, sequence] of sequences.entries()) append(sequence, prompts[at] as number[], every);
  return fed(sequences.filter((_, at) => prompts[at]?.length));
};

const step: Operation = async (world, { decoder, sequences }) => {
  const ids = sequences.map((sequence) =>
    room(sequence) === 0 || world.random.below(3) === 0 ? undefined : world.random.below(4096),
  );
  if (ids.every((id) => id === undefined)) return new Map();
  const next = await decoder.nextBatch(ids);
  for (const [at, id] of ids.entries()) {
    expect(next[at] === undefined).toBe(id === undefined);
    append(sequences[at] as Sequence, id === undefined ? [] : [id]);
  }
  return fed(sequences.filter((_, at) => ids[at] !== undefined));
};

const speculate: Operation = async (world, owner) => {
  const { state, decoder } = owner;
  const [sequence] = owner.sequences as [Sequence];
  if (room(sequence) < 6) return new Map();
  const id = world.random.below(4096);
  const text = await world.oracle(sequence, [id], 5);
  const guess = world.draft([id], text)([id], world.random.below(Math.min(4, state.maxRollback) + 1));
  const next = await decoder.speculate(id, guess);
  expect(next).toEqual(text.slice(0, next.length));
  const right = next.length - 1;
  const wrong = guess.findIndex((token, i) => token !== text[i]);
  expect(right).toBe(wrong < 0 ? guess.length : wrong);
  append(sequence, [id, ...guess.slice(0, right)]);
  sequence.left = Math.min(1 + guess.length, state.maxRollback) - (guess.length - right);
  return fed([sequence]);
};

const rollback: Operation = async (world, owner) => {
  const ready = world.owners.filter(({ sequences }) => sequences.some(({ left }) => left));
  const { state, sequences } = ready.length > 0 ? world.pick(ready) : owner;
  const each = sequences.map(({ left }) => (left ? world.random.below(left + 1) : 0));
  if (world.random.below(5) === 0) {
    // One token more than can be rolled back, in a sequence for which that number is known.
    const known = sequences.find(({ left }) => left !== undefined);
    const beyond = sequences.map((one) => (one === known ? (known.left as number) + 1 : 0));
    if (!known) beyond.fill(state.maxRollback + 1);
    await expect(state.rollback(beyond)).rejects.toThrow("state.rollback: `tokens` must be an integer from 0 to");
    return new Map();
  }
  await state.rollback(each);
  for (const [at, sequence] of sequences.entries()) {
    const count = each[at] as number;
    if (count === 0) continue;
    sequence.tokens.splice(sequence.tokens.length - count);
    sequence.left = (sequence.left as number) - count;
  }
  return fed(sequences.filter((_, at) => each[at]));
};

const save: Operation = async (world, { state, sequences }) => {
  const { at, tokens, bits } = world.pick(sequences);
  const kept = { saved: await state.save(at), tokens: [...tokens], bits };
  if (world.kept.length < 6) world.kept.push(kept);
  else world.kept[world.random.below(6)] = kept;
  return new Map();
};

const restore: Operation = async (world, { state, sequences }) => {
  if (world.kept.length === 0) return new Map();
  const { saved, tokens, bits } = world.pick(world.kept);
  const sequence = world.pick(sequences);
  if (tokens.length > state.capacity) {
    expect(() => state.restore(saved, sequence.at)).toThrow("state.restore: `saved` must hold at most");
    return new Map();
  }
  state.restore(saved, sequence.at);
  sequence.tokens = [...tokens];
  sequence.left = 0;
  return new Map([[sequence, bits]]);
};

const reset: Operation = async (world, { state, sequences }) => {
  const all = world.random.below(4) === 0;
  const chosen = all ? sequences : [world.pick(sequences)];
  if (all) state.reset();
  else state.reset(chosen[0]?.at);
  for (const sequence of chosen) {
    sequence.tokens = [];
    sequence.left = 0;
  }
  return fed(chosen);
};

const ENDS = ["length", "stop", "break", "abort", "abort in a pass", "throw"] as const;

const generateOne: Operation = async (world, owner) => {
  const [sequence] = owner.sequences as [Sequence];
  const { state } = owner;
  const { random } = world;
  if (room(sequence) < 2) return new Map();
  const prompt = world.ids(Math.min(5, room(sequence) - 1));
  const maxTokens = 1 + random.below(7);
  const text = await world.oracle(sequence, prompt, maxTokens + 1);
  const guessing = state.maxRollback > 0 && random.below(2) === 0;
  const end = world.pick(ENDS);
  const after = random.below(maxTokens) + 1;
  const controller = new AbortController();
  const ending: Partial<Ending> = {};
  const running = generate(world.model, prompt, {
    state,
    path: world.path(),
    maxTokens,
    stopTokens: end === "stop" ? [text[after - 1] as number] : [],
    signal: controller.signal,
    ending,
    ...(guessing && { draft: world.draft(prompt, text) }),
  });
  const out: number[] = [];
  const read = async () => {
    for (;;) {
      const next = running.next();
      if (end === "abort in a pass" && out.length === after - 1) controller.abort("enough");
      const { value, done } = await next;
      if (done) return;
      out.push(value as number);
      if (random.below(3) === 0) await disturb(world, owner);
      if (out.length < after) continue;
      if (end === "break") return void (await running.return());
      if (end === "throw") return void (await running.throw(new Error("enough")));
      if (end === "abort") controller.abort("enough");
    }
  };
  await read().catch((error) => expect(String(error)).toContain("enough"));
  expect(out).toEqual(text.slice(0, out.length));
  const full = sequence.tokens.length + prompt.length + out.length > state.capacity;
  append(sequence, [...prompt, ...out.slice(0, full ? -1 : undefined)]);
  if (state.tokens < sequence.tokens.length) {
    // It ended before the first id: the last token of the prompt had not been fed.
    expect(ending.finishReason).toBe("aborted");
    expect(out).toEqual([]);
    sequence.tokens.pop();
    sequence.left = undefined;
  } else sequence.left = guessing ? undefined : Math.min(1, state.maxRollback);
  return fed([sequence]);
};

const generateSeveral: Operation = async (world, owner) => {
  const { state, sequences } = owner;
  const { random } = world;
  if (sequences.some((sequence) => room(sequence) < 2)) return new Map();
  const prompts = sequences.map((sequence) => world.ids(Math.min(4, room(sequence) - 1)));
  const each = sequences.map(() => ({ maxTokens: 1 + random.below(5) }));
  const texts: number[][] = [];
  for (const [at, sequence] of sequences.entries())
    texts.push(await world.oracle(sequence, prompts[at] as number[], 6));
  const end = world.pick(ENDS);
  const after = 1 + random.below(3);
  const controller = new AbortController();
  const endings: Partial<Ending>[] = [];
  const stopTokens = end === "stop" ? texts.map((text) => text[after] as number) : [];
  const running = generateBatch(world.model, prompts, { state, each, stopTokens, signal: controller.signal, endings });
  const out: number[][] = sequences.map(() => []);
  const read = async () => {
    for (let count = 1; ; count++) {
      const next = running.next();
      if (end === "abort in a pass" && count === after + 1) controller.abort("enough");
      const { value, done } = await next;
      if (done) return;
      for (const [at, id] of value.entries()) if (id !== undefined) out[at]?.push(id);
      if (random.below(3) === 0) await disturb(world, owner);
      if (count < after) continue;
      if (end === "break") return void (await running.return());
      if (end === "throw") return void (await running.throw(new Error("enough")));
      if (end === "abort") controller.abort("enough");
    }
  };
  await read().catch((error) => expect(String(error)).toContain("enough"));
  expect(endings).toHaveLength(sequences.length);
  for (const [at, sequence] of sequences.entries()) {
    const own = out[at] as number[];
    expect(own).toEqual(texts[at]?.slice(0, own.length));
    const tokens = [...(prompts[at] as number[]), ...own];
    const full = sequence.tokens.length + tokens.length > state.capacity;
    append(sequence, full ? tokens.slice(0, -1) : tokens);
    sequence.left = undefined;
  }
  return fed(sequences);
};

const feedOne: Operation = async (world, owner) => {
  const [sequence] = owner.sequences as [Sequence];
  if (room(sequence) < 3) return new Map();
  const ids = world.ids(3);
  await prefill(world.model, owner.state, ids, { path: world.model.stepPath, positions: [] });
  append(sequence, ids);
  return fed([sequence]);
};

/** Operations on any state, and those on states of one sequence. */
const ANY = { feedPrompts, feedCached, step, rollback, save, restore, reset, generateSeveral };
const SINGLE = { feedOne, speculate, generateOne };

const SHAPES = [
  { capacity: 90, sequences: 1, rollback: 4 },
  { capacity: 70, sequences: 3, rollback: 4 },
  { capacity: 40, sequences: 1, rollback: 0 },
];

const cases = models.flatMap((model, at) =>
  Array.from({ length: repeated(at === 0 ? 8 : 4) }, (_, i) => ({ model, type: model.modelType, seed: i + 1 })),
);

it.each(cases)(
  "after eighty random operations every sequence holds its list of tokens: $type, seed $seed",
  async ({ model, seed }) => {
    const random = new Random(seed);
    using world = await World.create(model, random, SHAPES);
    const done: string[] = [];
    for (let i = 0; i < 80; i++) {
      const [name, operation] = world.pick(Object.entries({ ...ANY, ...SINGLE }));
      const owner = world.pick(world.owners.filter(({ sequences }) => !(name in SINGLE) || sequences.length === 1));
      done.push(`${name} on ${owner.name}`);
      const what = `seed ${seed}, operation ${i} (${done.slice(-4).join(", ")})`;
      try {
        await world.verify(what, await operation(world, owner));
      } catch (error) {
        (error as Error).message = `${what}: ${(error as Error).message}`;
        throw error;
      }
    }
  },
  // Eighty operations take long on a busy machine.
  180_000,
);

it("which met canceled passes, and beginnings that the cache restored", () => {
  expect(counted.canceled).toBeGreaterThan(0);
  expect(counted.restored).toBeGreaterThan(0);
});
