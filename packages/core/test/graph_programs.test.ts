// Random recordings over overlapping views, in place, in two wraps of one memory and in scratch: whatever an encoder does to
// them, the results have the bits of one dispatch after another.
import fc from "fast-check";
import { afterAll, describe, expect, it } from "vitest";
import { type Buffer, type CommandEncoder, Device, type OptimizeOptions, Tensor } from "../src/index.ts";
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
const RUNS = 150;

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
});

/** The memory that a program can see, and the scratch of one run. */
class World {
  readonly memory: Uint32Array;
  private readonly buffers: Buffer[];
  private scratch: Tensor[] = [];

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
  }

  get contents(): number[] {
    return [...this.memory.subarray(0, WORDS)];
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
    return new Tensor(buffer, "u32", [words], { byteOffset: 4 * (number % (WORDS - words + 1)) });
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
