// Random programs over overlapping views: the results have the bits of running one dispatch after another.
import { afterAll, describe, expect, it } from "vitest";
import type { Hazard } from "../src/hazards.ts";
import { type Buffer, type CommandEncoder, Device, Tensor } from "../src/index.ts";
import type { Accesses } from "../src/ranges.ts";
import { Random } from "../src/testing/index.ts";
import { hazardByDefinition } from "./hazard_definition.ts";
import { rangeOf } from "./internals.ts";
import { accumulateKernel, increment, launchKernel, limit } from "./kernels/probe.ts";

const PROGRAMS = 60;
const STEPS = 40;

/** Words of one wrapped array. */
interface View {
  wrap: number;
  at: number;
  words: number;
}

type Step =
  | { op: "increment"; x: View; out: View; groups: number }
  | { op: "limit"; x: View; out: View }
  | { op: "accumulate"; x: View; y: View | undefined; total: View }
  | { op: "launch"; out: View; groups: number; scratch: number };

/** Words of each wrap. */
const WORDS = [96, 96, 80, 48];

/** Two wraps of one memory, a third of its end, and one of a memory of its own; `apart`, each has its own. */
class World {
  readonly device: Device;
  readonly memories: Uint32Array[];
  private readonly buffers: Buffer[];
  private readonly tensors = new Map<string, Tensor<"u32">>();

  constructor(device: Device, apart = false) {
    const shared = (words: number, first: number) => {
      const array = new Uint32Array(new SharedArrayBuffer(4 * words));
      for (let i = 0; i < words; i++) array[i] = first + i;
      return array;
    };
    this.device = device;
    const [large, small] = [shared(96, 1000), shared(48, 5000)];
    const wraps = apart
      ? [large, shared(96, 2000), shared(80, 3000), small]
      : [large, new Uint32Array(large.buffer), large.subarray(16), small];
    this.memories = apart ? wraps : [large, small];
    this.buffers = wraps.map((wrap) => device.wrap(wrap));
  }

  tensor({ wrap, at, words }: View): Tensor<"u32"> {
    const key = `${wrap} ${at} ${words}`;
    const known = this.tensors.get(key);
    if (known) return known;
    const tensor = new Tensor(this.buffers[wrap] as Buffer, "u32", [words], { byteOffset: 4 * at });
    this.tensors.set(key, tensor);
    return tensor;
  }

  /** Pairs of the tensors of this world and those of another, to rebind. */
  pairs(other: World): [Tensor, Tensor][] {
    return [...this.tensors].map(([key, tensor]) => {
      const [wrap, at, words] = key.split(" ").map(Number) as [number, number, number];
      return [tensor, other.tensor({ wrap, at, words })];
    });
  }

  get contents(): number[][] {
    return this.memories.map((memory) => [...memory]);
  }
}

function encode(encoder: CommandEncoder, step: Step, world: World): void {
  const at = (view: View) => world.tensor(view);
  if (step.op === "increment") increment(encoder, { x: at(step.x), out: at(step.out) }, { groups: step.groups });
  else if (step.op === "limit") limit(encoder, { x: at(step.x), out: at(step.out) }, { limit: 0xffffffff });
  else if (step.op === "accumulate")
    encoder.dispatch(accumulateKernel, {
      variant: "u32",
      buffers: { x: at(step.x), y: step.y && at(step.y), total: at(step.total) },
      params: {},
      sizes: {},
    });
  else
    encoder.dispatch(launchKernel, {
      variant: "u32",
      buffers: { absent: undefined, out: at(step.out) },
      params: { u: step.out.at, i: step.groups, f: 0.5 },
      sizes: { groups: [step.groups, 1, 1], scratch: step.scratch },
    });
}

/** What a step reads and writes, in order of binding. */
function accesses(step: Step, world: World): Accesses {
  const range = (view: View) => rangeOf(world.tensor(view));
  if (step.op === "launch") return { label: "launch/launch_u32", reads: [], writes: [range(step.out)] };
  if (step.op !== "accumulate")
    return { label: `${step.op}/${step.op}_u32`, reads: [range(step.x)], writes: [range(step.out)] };
  const { x, y, total } = step;
  const reads = [x, ...(y ? [y] : []), total].map(range);
  return { label: "accumulate/accumulate_u32", reads, writes: [range(total)] };
}

function randomStep(random: Random): Step {
  const view = (words: number): View => {
    const wrap = random.below(4);
    return { wrap, at: random.below((WORDS[wrap] as number) - words + 1), words };
  };
  const kind = random.below(10);
  if (kind < 5) {
    const groups = 1 + random.below(5);
    const words = groups * (1 + random.below(4));
    const x = view(words);
    return { op: "increment", x, out: random.below(5) === 0 ? x : view(words), groups };
  }
  if (kind < 7) {
    const words = 1 + random.below(12);
    return { op: "limit", x: view(words), out: view(words) };
  }
  if (kind < 9) return { op: "accumulate", x: view(1), y: random.below(2) ? view(1) : undefined, total: view(1) };
  const groups = 1 + random.below(3);
  return { op: "launch", out: view(9 * groups), groups, scratch: 32 * random.below(2) };
}

/** Steps that are valid by themselves: no output overlaps another argument in part. */
function randomProgram(seed: number, device: Device): Step[] {
  const random = new Random(seed);
  const world = new World(device);
  const encoder = device.encoder({ barriers: "manual" });
  const steps: Step[] = [];
  while (steps.length < STEPS) {
    const step = randomStep(random);
    try {
      encode(encoder, step, world);
    } catch (error) {
      expect((error as Error).message).toContain("overlapping views");
      continue;
    }
    steps.push(step);
  }
  encoder.dispose();
  return steps;
}

/** The hazards of a program by their definition: one for each barrier that is needed, and no other. */
function definedHazards(steps: readonly Step[], world: World): Hazard[] {
  const hazards: Hazard[] = [];
  let recorded: Accesses[] = [];
  for (const step of steps) {
    const next = accesses(step, world);
    const hazard = hazardByDefinition(recorded, next);
    if (hazard) {
      hazards.push(hazard);
      recorded = [];
    }
    recorded.push(next);
  }
  return hazards;
}

describe("random programs", () => {
  const plain = Device.open("cpu", { threads: 1 });
  const validating = Device.open("cpu", { threads: 1, validate: true });
  const devices = ([1, 3, 8] as const).flatMap((threads) =>
    (["forward", "reverse"] as const).map((order) => Device.open("cpu", { threads, order })),
  );
  afterAll(() => {
    for (const device of [plain, validating, ...devices]) device.dispose();
  });
  const programs = Array.from({ length: PROGRAMS }, (_, seed) => randomProgram(seed, plain));

  /** The memory after each of `runs` runs of the program, one dispatch after another. */
  async function oneByOne(steps: readonly Step[], runs: number): Promise<number[][][]> {
    const world = new World(plain);
    const after: number[][][] = [];
    for (let run = 0; run < runs; run++) {
      let last: PromiseLike<unknown> | undefined;
      for (const step of steps) {
        const encoder = plain.encoder();
        encode(encoder, step, world);
        last = encoder.commit();
      }
      await last;
      after.push(world.contents);
    }
    return after;
  }

  it("give the bits of one dispatch after another, with the fewest barriers", async () => {
    let barriers = 0;
    for (const steps of programs) {
      const [once, twice] = await oneByOne(steps, 2);
      for (const device of devices) {
        const record = (world: World) => {
          const encoder = world.device.encoder();
          for (const step of steps) encode(encoder, step, world);
          return encoder;
        };
        const committed = new World(device);
        await record(committed).commit();
        expect(committed.contents).toEqual(once);

        const profiled = new World(device);
        await record(profiled).commit({ profile: true });
        expect(profiled.contents).toEqual(once);

        const replayed = new World(device);
        const recording = record(replayed).finish();
        expect(recording.barriers).toBe(definedHazards(steps, replayed).length);
        void recording.replay();
        await recording.replay();
        expect(replayed.contents).toEqual(twice);

        // Recorded where no two wraps share memory, and run where they do: other barriers, and as many as needed.
        const apart = new World(device, true);
        const together = new World(device);
        const separate = record(apart).finish();
        const rebound = separate.rebind(apart.pairs(together));
        expect(separate.barriers).toBe(definedHazards(steps, apart).length);
        expect(rebound.barriers).toBe(recording.barriers);
        await rebound.replay();
        expect(together.contents).toEqual(once);
        barriers += recording.barriers - separate.barriers;
      }
    }
    expect(barriers).toBeGreaterThan(0);
  });

  it("name, for each missing barrier, the first dispatch that conflicts and the ranges", () => {
    const kinds = new Set<string>();
    for (const steps of programs) {
      const world = new World(validating);
      const encoder = validating.encoder({ barriers: "manual" });
      const texts: string[] = [];
      for (const step of steps)
        try {
          encode(encoder, step, world);
        } catch (error) {
          texts.push((error as Error).message);
          encoder.barrier();
          encode(encoder, step, world);
        }
      const side = ({ label, range: { begin, end } }: Hazard["earlier"]) =>
        `${label} [0x${begin.toString(16)}, 0x${end.toString(16)})`;
      const defined = definedHazards(steps, world);
      expect(texts).toEqual(
        defined.map(
          ({ kind, earlier, later }) =>
            `${later.label.split("/")[0]}: \`encoder\` must have a barrier before this dispatch (${kind}), ` +
            `got ${side(earlier)} against ${side(later)} — call encoder.barrier()`,
        ),
      );
      for (const { kind } of defined) kinds.add(kind);
    }
    expect([...kinds].sort()).toEqual(["RAW", "WAR", "WAW"]);
  });
});
