// Random recordings over overlapping views, in place, in two wraps of one memory and in scratch: whatever an encoder does to
// them, the results have the bits of one dispatch after another.
import { repeated } from "@mlxts/test-kit/rings";
import fc from "fast-check";
import { afterAll, describe, expect, it } from "vitest";
import {
  type Buffer,
  type CommandEncoder,
  Device,
  type OptimizeOptions,
  type Recording,
  Tensor,
} from "../src/index.ts";
import type { Accesses } from "../src/ranges.ts";
import { hazardByDefinition } from "./hazard_definition.ts";
import { accessesOf } from "./internals.ts";
import {
  count,
  countAndMixFusion,
  countBesideMixFusion,
  countBothFusion,
  countBothMixFusion,
  countMixFusion,
  mix,
  mixTwoFusion,
} from "./kernels/chain.ts";
import { increment } from "./kernels/probe.ts";

/** Words of the memory that a program can see. */
const WORDS = 24;
const PAGE_BYTES = 16384;
const RUNS = repeated(150);

/** A step takes its tensors by number: views of what can be seen, and of scratch that earlier steps have made. */
interface Step {
  /** "both": counts of one tensor or of two, a mix between, and the mix of the counts. */
  op: "increment" | "count" | "mix" | "both";
  words: number;
  a: number;
  b: number;
  /** Undefined: scratch. */
  out: number | undefined;
}

interface Program {
  steps: readonly Step[];
  /** Which scratch is kept, by number. */
  keep: readonly boolean[];
  /** Rebindings, each of the recording that the one before has given. */
  rebindings: readonly Rebinding[];
}

/** What stands in place of visible tensors that a recording binds, by number; `all`: all of them move to the spare memory. */
interface Rebinding {
  all: boolean;
  pairs: readonly { from: number; to: number; spare: boolean }[];
}

const place = fc.nat({ max: 999 });
const programs: fc.Arbitrary<Program> = fc.record({
  steps: fc.array(
    fc.record({
      op: fc.constantFrom("increment" as const, "count" as const, "mix" as const, "mix" as const, "both" as const),
      words: fc.constantFrom(1, 2, 2, 4),
      a: place,
      b: place,
      out: fc.option(place, { nil: undefined }),
    }),
    { minLength: 1, maxLength: 24 },
  ),
  keep: fc.array(fc.boolean(), { maxLength: 8 }),
  rebindings: fc.array(
    fc.record({
      all: fc.boolean(),
      pairs: fc.array(fc.record({ from: place, to: place, spare: fc.boolean() }), { minLength: 1, maxLength: 2 }),
    }),
    { minLength: 2, maxLength: 2 },
  ),
});

/** The memory that a program can see, and the scratch of one run. */
class World {
  readonly memory: Uint32Array;
  private readonly buffers: Buffer[];
  private scratch: Tensor[] = [];
  /** What the dispatches bind of the memory. */
  private bound: Tensor[] = [];

  constructor(device: Device) {
    // A buffer's own array lies on whole pages, which a GPU asks for.
    const buffer = device.buffer(PAGE_BYTES);
    this.memory = new Uint32Array(buffer.arrayBuffer());
    this.memory.forEach((_, i) => {
      this.memory[i] = 1000 * i;
    });
    this.buffers = [buffer, device.wrap(this.memory)];
  }

  begin(): void {
    this.scratch = [];
    this.bound = [];
  }

  /** The words that programs see, and the spare ones behind them. */
  get contents(): number[] {
    return [...this.memory.subarray(0, 2 * WORDS)];
  }

  private at(buffer: Buffer, word: number, words: number): Tensor {
    return new Tensor(buffer, "u32", [words], { byteOffset: 4 * word });
  }

  private note(tensors: readonly Tensor[], inWords: boolean): void {
    for (const tensor of tensors) {
      if (!this.buffers.includes(tensor.buffer)) continue;
      if (!inWords) this.bound.push(tensor);
      else for (let i = 0; i < tensor.size; i++) this.bound.push(tensor.slice(i, i + 1));
    }
  }

  /** The pairs of a rebinding; later ones are chosen from what this one binds. */
  pairs({ all, pairs }: Rebinding): [Tensor, Tensor][] {
    if (this.bound.length === 0) return [];
    const like = (from: Tensor, word: number) => this.at(from.buffer, word, from.size);
    const first = ({ byteOffset }: Tensor) => (byteOffset / 4) % WORDS;
    const chosen = all
      ? this.bound.map((from): [Tensor, Tensor] => [from, like(from, WORDS + first(from))])
      : pairs.map(({ from: number, to, spare }): [Tensor, Tensor] => {
          const from = this.bound[number % this.bound.length] as Tensor;
          return [from, like(from, spare ? WORDS + first(from) : to % (WORDS - from.size + 1))];
        });
    const same = (a: Tensor, b: Tensor) => a.buffer === b.buffer && a.byteOffset === b.byteOffset && a.size === b.size;
    this.bound = this.bound.map((tensor) => chosen.find(([from]) => same(from, tensor))?.[1] ?? tensor);
    return chosen;
  }

  kept(keep: readonly boolean[]): Tensor[] {
    return this.scratch.filter((_, i) => keep[i]);
  }

  /** Half of the numbers are the latest scratch, so that chains arise. */
  private input(number: number, words: number): Tensor {
    const { scratch } = this;
    if (number % 2 === 0 && scratch.length > 0) {
      const from = scratch[scratch.length - 1 - (Math.floor(number / 2) % Math.min(3, scratch.length))] as Tensor;
      if (from.size === words) return from;
      if (from.size > words)
        return from.slice(number % (from.size - words + 1), (number % (from.size - words + 1)) + words);
    }
    return this.visible(number, words);
  }

  private visible(number: number, words: number): Tensor {
    const buffer = this.buffers[number % 2] as Buffer;
    return this.at(buffer, number % (WORDS - words + 1), words);
  }

  private output(number: number, words: number): Tensor {
    return number % 3 === 0 ? this.input(number, words) : this.visible(number, words);
  }

  /** Encodes a step; one whose output would overlap an input in part is left out. */
  encode(encoder: CommandEncoder, { op, words, a, b, out }: Step): void {
    const given = out === undefined ? undefined : this.output(out, words);
    const x = this.input(a, words);
    const other = this.input(b, words);
    const record = (): Tensor => {
      if (op === "increment") return increment(encoder, { x, out: given });
      if (op === "count") return count(encoder, { x, next: given }).next;
      if (op === "mix") return mix(encoder, { a: x, b: other, out: given });
      const one = count(encoder, { x }).next;
      this.scratch.push(mix(encoder, { a: x, b: other }));
      return mix(encoder, { a: one, b: count(encoder, { x: b % 2 === 0 ? x : other }).next, out: given });
    };
    try {
      const made = record();
      if (op === "increment" || op === "count" || op === "mix")
        this.note([x, made, ...(op === "mix" ? [other] : [])], op === "mix");
      if (!given) this.scratch.push(made);
    } catch (error) {
      expect((error as Error).message).toContain("overlapping views");
    }
  }
}

interface Outcome {
  contents: number[];
  kept: number[][];
}

const read = (tensors: readonly Tensor[]): number[][] =>
  tensors.map((tensor) => [...(tensor.readSync() as Uint32Array)]);

/** What is left after each of two runs of one dispatch after another. */
async function oneByOne(device: Device, { steps, keep }: Program): Promise<Outcome[]> {
  const world = new World(device);
  const outcomes: Outcome[] = [];
  for (let run = 0; run < 2; run++) {
    world.begin();
    for (const step of steps) {
      const encoder = device.encoder();
      world.encode(encoder, step);
      await encoder.commit();
    }
    outcomes.push({ contents: world.contents, kept: read(world.kept(keep)) });
  }
  return outcomes;
}

/** Barriers that the hazards of a recording ask for, by their definition. */
function definedBarriers(all: readonly Accesses[]): number {
  let barriers = 0;
  let recorded: Accesses[] = [];
  for (const next of all) {
    if (hazardByDefinition(recorded, next)) {
      barriers++;
      recorded = [];
    }
    recorded.push(next);
  }
  return barriers;
}

const CHAINS = [countBothMixFusion, countBothFusion, countMixFusion, countAndMixFusion];
const SIBLINGS = [mixTwoFusion, countBesideMixFusion];
const MODES: Record<string, boolean | OptimizeOptions> = {
  "as recorded": false,
  "with scratch of its own": { reorder: false, reuseScratch: false },
  fused: { fuse: [...CHAINS, ...SIBLINGS], reorder: false, reuseScratch: false },
  "siblings fused first": { fuse: [...SIBLINGS, ...CHAINS], reorder: false, reuseScratch: false },
  reordered: { reuseScratch: false },
  "with shared scratch": { reorder: false },
  "all at once": { fuse: [...CHAINS, ...SIBLINGS] },
};

describe("random recordings", () => {
  const devices = ([false, true] as const).map((poison) =>
    Device.open(undefined, { threads: 3, order: poison ? "reverse" : "forward", poison }),
  );
  const plain = Device.open(undefined, { threads: 1 });
  afterAll(() => {
    for (const device of [plain, ...devices]) device.dispose();
  });

  it("that were optimized refuse to be rebound, or give the bits of one dispatch after another", async () => {
    const total = { taken: 0, changed: 0, refused: 0 };
    const attempt = (call: () => Recording) => {
      try {
        return call();
      } catch (error) {
        expect(error).toBeInstanceOf(RangeError);
        return undefined;
      }
    };
    await fc.assert(
      fc.asyncProperty(programs, async (program) => {
        for (const mode of ["reordered", "all at once"]) {
          const optimize = MODES[mode] as OptimizeOptions;
          const [device] = devices as [Device, Device];
          const worlds = [new World(device), new World(device)] as const;
          const before = device.counters;
          let [inOrder, optimized] = worlds.map((world, i) => {
            const encoder = device.encoder({ optimize: i === 1 && optimize });
            world.begin();
            for (const step of program.steps) world.encode(encoder, step);
            return encoder.finish({ keep: world.kept(program.keep) });
          }) as [Recording, Recording];
          const { fusedPairs, movedNodes } = device.counters;
          const changed = fusedPairs + movedNodes > before.fusedPairs + before.movedNodes;
          for (const rebinding of program.rebindings) {
            const [plainPairs, pairs] = worlds.map((world) => world.pairs(rebinding)) as [[], []];
            const plain = attempt(() => inOrder.rebind(plainPairs));
            const rebound = attempt(() => optimized.rebind(pairs));
            if (!rebound) total.refused++;
            if (!plain) expect(rebound).toBeUndefined();
            if (!plain || !rebound) break;
            [inOrder, optimized] = [plain, rebound];
            await Promise.all([inOrder.replay(), optimized.replay()]);
            const [wanted, got] = worlds.map((world) => [world.contents, read(world.kept(program.keep))]);
            expect(got).toEqual(wanted);
            total.taken++;
            if (changed) total.changed++;
          }
        }
      }),
      { numRuns: 4 * RUNS, seed: 11 },
    );
    for (const often of Object.values(total)) expect(often).toBeGreaterThan(RUNS / 2);
  });

  it("give the bits of one dispatch after another, with the barriers that their hazards ask for and no other", async () => {
    const total = { fused: 0, moved: 0, saved: 0, bytes: 0 };
    const results: Record<string, number> = {
      countMix: 0,
      countBoth: 0,
      mixTwo: 0,
      countBothMix: 0,
      countBesideMix: 0,
    };
    await fc.assert(
      fc.asyncProperty(programs, async (program) => {
        const [once, twice] = (await oneByOne(plain, program)) as [Outcome, Outcome];
        for (const device of devices) {
          const barriers: Record<string, number> = {};
          for (const [mode, optimize] of Object.entries(MODES)) {
            const world = new World(device);
            const record = () => {
              world.begin();
              const encoder = device.encoder({ optimize });
              for (const step of program.steps) world.encode(encoder, step);
              return encoder;
            };
            const before = device.counters;
            const recording = record().finish({ keep: world.kept(program.keep) });
            const after = device.counters;
            await recording.replay();
            expect({ contents: world.contents, kept: read(world.kept(program.keep)) }, mode).toEqual(once);
            await recording.replay();
            expect({ contents: world.contents, kept: read(world.kept(program.keep)) }, mode).toEqual(twice);
            expect(recording.barriers).toBe(definedBarriers(accessesOf(recording)));
            expect(after.automaticBarriers - before.automaticBarriers).toBe(recording.barriers);
            expect(after.dispatches - before.dispatches).toBe(recording.dispatches);
            barriers[mode] = recording.barriers;
            for (const op of new Set(accessesOf(recording).map(({ label }) => label.split("/")[0] as string)))
              if (op in results) results[op] = (results[op] as number) + 1;
            total.fused += after.fusedPairs - before.fusedPairs;
            total.moved += after.movedNodes - before.movedNodes;
            recording.dispose();

            const committed = new World(device);
            committed.begin();
            const encoder = device.encoder({ optimize });
            for (const step of program.steps) committed.encode(encoder, step);
            await encoder.commit({ keep: committed.kept(program.keep) });
            expect({ contents: committed.contents, kept: read(committed.kept(program.keep)) }, mode).toEqual(once);
          }
          expect(barriers["with scratch of its own"]).toBe(barriers["as recorded"]);
          expect(barriers["with shared scratch"]).toBe(barriers["as recorded"]);
          expect(barriers.reordered).toBeLessThanOrEqual(barriers["as recorded"] as number);
          total.saved += (barriers["as recorded"] as number) - (barriers.reordered as number);
        }
      }),
      { numRuns: RUNS, seed: 7 },
    );
    expect(total.fused).toBeGreaterThan(RUNS / 10);
    for (const [op, recordings] of Object.entries(results)) expect(recordings, op).toBeGreaterThan(RUNS / 10);
    expect(total.moved).toBeGreaterThan(RUNS);
    expect(total.saved).toBeGreaterThan(RUNS);
  });
});
