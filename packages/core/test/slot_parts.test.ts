// How threads share gathered products: by rows, whichever matrices have been chosen.
import { describe, expect, it } from "vitest";
import { gatheredSlots } from "../src/index.ts";
import { Random } from "../src/testing/index.ts";
import { testDevice } from "./helpers.ts";
import { MOST_ROWS, slotPartsKernel } from "./kernels/gathered.ts";

const MATRICES = 61;
const BLOCKS = 7;
const THREADS = 3;
/** Ranges of threadgroups that a launch is divided into. */
const RANGES = 4 * THREADS;
/** What decoding a block of a matrix counts as, in rows. */
const DECODING = 8;

const random = new Random(11);
const sum = (numbers: readonly number[]) => numbers.reduce((a, b) => a + b, 0);

const CHOICES: Record<string, (pair: number) => number> = {
  "all choose the first matrix": () => 0,
  "all choose the last matrix": () => MATRICES - 1,
  "all choose one between": () => 23,
  "half choose one": (pair) => (pair % 2 ? 40 : random.below(MATRICES)),
  "each chooses any": () => random.below(MATRICES),
  "two matrices in turn": (pair) => 50 + (pair % 2),
};

describe("threads share the rows of gathered products", () => {
  const device = testDevice({ threads: THREADS });

  async function ranges(chosen: readonly number[], m: number, ordered: boolean) {
    const pairs = chosen.length;
    const matrices = MATRICES;
    const counting = chosen.map((_, pair) => pair);
    const order = [...counting].sort((a, b) => (chosen[a] as number) - (chosen[b] as number) || a - b);
    const offsets = Array.from({ length: matrices + 1 }, (_, e) => chosen.filter((matrix) => matrix < e).length);
    const indices = {
      rhsIndices: device.tensor("u32", [pairs], chosen),
      order: ordered ? device.tensor("i32", [pairs], order) : undefined,
      offsets: ordered ? device.tensor("i32", [matrices + 1], offsets) : undefined,
    };
    const taken = device.tensor("u32", [pairs * m, BLOCKS]);
    const by = device.tensor("u32", [pairs * m, BLOCKS]);
    const counts = { pairs, m, matrices, lefts: pairs, rhsCount: pairs, lhsCount: 0, signedIndices: 0 };
    const axes = { size0: pairs, size1: 1, left0: 1, left1: 0, left2: 0, right0: 1, right1: 0, right2: 0 };
    const encoder = device.encoder();
    encoder.dispatch(slotPartsKernel, {
      variant: "u32",
      buffers: { ...indices, taken, by },
      params: { ...counts, ...axes },
      sizes: { slots: gatheredSlots({ pairs, m, matrices, ordered }, MOST_ROWS), blocks: BLOCKS },
    });
    await encoder.commit();
    return { taken: Array.from(await taken.read()), by: Array.from(await by.read()) };
  }

  /** Every product is computed once, and no range has more than its part and the block that it ends with. */
  async function expectShared(chosen: readonly number[], m: number, ordered: boolean): Promise<void> {
    const { taken, by } = await ranges(chosen, m, ordered);
    expect(new Set(taken)).toEqual(new Set([1]));
    const rows = new Map<number, number>();
    for (const range of by) rows.set(range, (rows.get(range) ?? 0) + 1);
    const owners = ordered
      ? Array.from({ length: MATRICES }, (_, e) => chosen.filter((own) => own === e).length)
      : chosen.map(() => m);
    const work = BLOCKS * sum(owners.map((own) => own + DECODING * Math.ceil(own / MOST_ROWS)));
    for (const own of rows.values()) expect(own).toBeLessThanOrEqual(work / RANGES + MOST_ROWS + DECODING);
  }

  it.each(Object.entries(CHOICES))("%s", async (_, choose) => {
    for (const pairs of [1, 5, 300, 1000])
      await expectShared(
        Array.from({ length: pairs }, (_, pair) => choose(pair)),
        1,
        true,
      );
  });

  it("without an order", async () => {
    for (const [pairs, m] of [
      [1, 200],
      [30, 9],
      [7, 4],
    ] as const)
      await expectShared(Array.from(random.integers(pairs, MATRICES)), m, false);
  });
});
