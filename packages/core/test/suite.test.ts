import { describe, expect, it } from "vitest";
import type { Device } from "../src/index.ts";
import {
  BARS,
  compare,
  type Reference64,
  type ReferenceFunction,
  type Suite,
  suiteCases,
  suiteTests,
  within,
} from "../src/testing/index.ts";
import { faultyOps, reshapingOp, rightOp, severalOp, silentFloatOp } from "./faulty_ops.ts";
import { testDevice } from "./helpers.ts";

const device = testDevice({ threads: 1, poison: true });
const keeping = testDevice({ threads: 1, poison: false });
const reversed = testDevice({ threads: 2, order: "reverse", poison: true });

const N = 67;
const numbers = Array.from({ length: N }, (_, i) => 10 * i + 7);
const x = { dtype: "u32" as const, shape: [N], data: numbers };
const out =
  (f: (value: number, i: number) => number): ReferenceFunction =>
  (inputs) => ({ out: { shape: [N], data: (inputs.x as Reference64).data.map(f) } });
const plusOne = out((value) => value + 1);

/** A suite of two equal cases: the first starts at 64 elements, the second at 67. */
const suiteOf = (op: Suite["op"], change: Partial<Suite> = {}): Suite => ({
  op,
  reference: plusOne,
  errorClass: "exact",
  dtypes: ["f32"],
  cases: ["even", "odd"].map((name) => ({ name, inputs: { x } })),
  ...change,
});

/** The message of each test of a suite; "" where it passes. */
async function verdicts(suite: Suite, first: Device = device, others: readonly Device[] = [reversed]) {
  const texts: string[] = [];
  for (const test of suiteTests(suite, () => ({ device: first, others })))
    texts.push(
      await test.run().then(
        () => "",
        (error: Error) => error.message,
      ),
    );
  return texts;
}

describe("a suite", () => {
  it("passes an op that is right", async () => {
    expect(await verdicts(suiteOf(rightOp))).toEqual(["", ""]);
  });

  it.each<[keyof typeof faultyOps, string]>([
    ["writesPastTheEnd", "`out`: elements outside the view were written"],
    ["writesBeforeTheStart", "`out`: elements outside the view were written"],
    ["modifiesItsInput", "`x`: an input was modified"],
    ["ignoresTheOffset", "`out`[0] is 0, must be 8"],
    ["leavesTheOutput", "`out`[0] is 4294967295, must be 8"],
    ["skipsTheTail", "`out`[64] is 4294967295, must be 648"],
  ])("fails an op that %s", async (name, text) => {
    expect(await verdicts(suiteOf(faultyOps[name]))).toEqual([text, text]);
  });

  it("fails an op that is right at aligned offsets only", async () => {
    expect(await verdicts(suiteOf(faultyOps.roundsTheOffsetDown))).toEqual(["", "`out`[0] is 0, must be 8"]);
  });

  const scratch = "`out`: bits differ between thread counts, orders or scratch contents";

  it("fails an op that trusts its scratch, by poison", async () => {
    const suite = suiteOf(faultyOps.trustsScratch);
    expect(await verdicts(suite)).toEqual([scratch, scratch]);
    // Without a second device the number itself is wrong.
    const text = "`out`[0] is 7, must be 8";
    expect(await verdicts(suite, device, [])).toEqual([text, text]);
  });

  it("fails an op that trusts its scratch, by what the case before has left there", async () => {
    expect((await verdicts(suiteOf(faultyOps.trustsScratch), keeping, [reversed]))[1]).toBe(scratch);
  });

  it("fails an op whose numbers depend on the order of threadgroups", async () => {
    const suite = suiteOf(faultyOps.dependsOnOrder, { reference: out((_, i) => 7 + 3 + i) });
    expect(await verdicts(suite, device, [])).toEqual(["", ""]);
    expect(await verdicts(suite, device, [reversed])).toEqual([scratch, scratch]);
  });

  it("fails a float op that writes nothing", async () => {
    const suite = suiteOf(silentFloatOp, {
      errorClass: "S",
      reference: out((value) => value),
      cases: [{ name: "floats", inputs: { x: { dtype: "act", shape: [N], data: numbers } } }],
    });
    const [text] = await verdicts(suite);
    expect(text).toMatch(/^`out`: ratio .*, not finite where the reference is$/);
  });

  it("fails an op that returns another shape", async () => {
    const text = `\`out\` has shape [1,${N}], the reference [${N}]`;
    expect(await verdicts(suiteOf(reshapingOp))).toEqual([text, text]);
  });
});

describe("outputs that the reference has", () => {
  const reference: ReferenceFunction = (inputs, options, dtype) => {
    const { out } = plusOne(inputs, options, dtype);
    return { out, extra: out } as ReturnType<ReferenceFunction>;
  };
  const asking = [{ name: "asked", inputs: { x }, ask: { extra: { dtype: "u32" as const, shape: [N] } } }];
  const missing = (name: string) => `\`${name}\`: the reference has it, the op returned none`;

  it("may be optional and not asked for", async () => {
    expect(await verdicts(suiteOf(severalOp(), { reference }))).toEqual(["", ""]);
  });

  it("are compared when asked for", async () => {
    expect(await verdicts(suiteOf(severalOp(), { reference, cases: asking }))).toEqual([""]);
    const wrong: ReferenceFunction = (...all) => ({
      ...reference(...all),
      extra: { shape: [N], data: new Float64Array(N) },
    });
    expect(await verdicts(suiteOf(severalOp(), { reference: wrong, cases: asking }))).toEqual([
      "`extra`[0] is 8, must be 0",
    ]);
  });

  it("must be returned otherwise", async () => {
    expect(await verdicts(suiteOf(severalOp("out"), { reference }))).toEqual([missing("out"), missing("out")]);
    expect(await verdicts(suiteOf(severalOp("extra"), { reference, cases: asking }))).toEqual([missing("extra")]);
    const unknown: ReferenceFunction = (...all) => ({
      ...plusOne(...all),
      other: { shape: [1], data: new Float64Array(1) },
    });
    expect(await verdicts(suiteOf(rightOp, { reference: unknown }))).toEqual([missing("other"), missing("other")]);
  });
});

describe("records", () => {
  const run = async (suite: Suite, others: readonly Device[] = []) => {
    const results = [];
    for (const each of suiteCases(suite)) results.push(await each.run({ device, others }, { trace: true }));
    return results;
  };
  const floats = (f: (value: number) => number) =>
    suiteOf(silentFloatOp, {
      errorClass: "S",
      reference: out(f),
      dtypes: ["f32", "bf16"],
      cases: [{ name: "floats", inputs: { x: { dtype: "act", shape: [N], data: numbers } } }],
    });

  it("name cases and dtypes", () => {
    const names = suiteCases(floats((value) => value)).map(({ op, dtype, name }) => [op, dtype, name]);
    expect(names).toEqual([
      [silentFloatOp.op.name, "f32", "floats"],
      [silentFloatOp.op.name, "bf16", "floats"],
    ]);
  });

  it("have the numbers of each output and the kernels that ran", async () => {
    const [result] = await run(suiteOf(rightOp), [reversed]);
    expect(result).toMatchObject({
      outputs: [
        {
          output: "out",
          pass: true,
          message: "",
          compared: { dtype: "u32", errorClass: "exact", ratio: 0, bar: 0, maxAbs: 0, finite: true },
        },
      ],
      kernels: [expect.stringMatching(/^[a-z0-9_]+_u32$/)],
    });
    expect(result?.deviceMs).toBeGreaterThan(0);
    const [silent] = await run({ ...floats((value) => value), dtypes: ["f32"] });
    expect(silent?.outputs[0]).toMatchObject({
      pass: false,
      message: expect.stringMatching(/^`out`: ratio/),
      compared: { dtype: "f32", errorClass: "S", bar: BARS.S.f32, finite: false },
    });
  });

  it("tell bits that change from run to run", async () => {
    let calls = 0;
    const op = Object.assign(
      (...given: Parameters<Suite["op"]>) => (calls++ === 1 ? faultyOps.leavesTheOutput : rightOp)(...given),
      {
        op: rightOp.op,
      },
    );
    const [result] = await run(suiteOf(op));
    expect(result?.outputs).toEqual([
      { output: "out", pass: false, message: "`out`: bits differ when it runs again, one dispatch at a time" },
    ]);
  });
});

describe("mutants", () => {
  it("must fail a case", async () => {
    const mutants = { wrong: out((value) => value + 2), "as right as the reference": plusOne };
    expect(await verdicts(suiteOf(rightOp, { mutants }))).toEqual([
      "",
      "",
      "",
      "no case tells this wrong implementation from the right one",
    ]);
  });

  it("must fail by 1.2 times the bar", async () => {
    const error = BARS.S.f32;
    const scaledBy = (factor: number) => out((value) => value * (1 + factor * error));
    const suite = suiteOf(silentFloatOp, {
      errorClass: "S",
      reference: out((value) => value),
      cases: [{ name: "floats", inputs: { x: { dtype: "act", shape: [N], data: numbers } } }],
      mutants: { "1.1 bars": scaledBy(1.1), "1.4 bars": scaledBy(1.4) },
    });
    expect((await verdicts(suite)).slice(1)).toEqual([
      "no case tells this wrong implementation from the right one",
      "",
    ]);
  });
});

describe("comparisons", () => {
  const { NaN: nan, POSITIVE_INFINITY: infinity } = Number;
  const passes = (a: readonly number[], b: readonly number[]) => within(compare(a, b), 0.1, 12);

  it("give ratio, largest error and scale", () => {
    const c = compare([3, 4.5], [3, 4]);
    expect(c.ratio).toBeCloseTo(0.5 / 5, 12);
    expect(c).toMatchObject({ maxAbs: 0.5, finite: true });
    expect(c.scale).toBeCloseTo(Math.sqrt(12.5), 12);
  });

  it("demand NaN and infinities where the reference has them, and nowhere else", () => {
    expect(passes([1, nan], [1, nan])).toBe(true);
    expect(passes([1, infinity, -infinity], [1, infinity, -infinity])).toBe(true);
    for (const [value, wanted] of [
      [nan, 1],
      [infinity, 1],
      [-infinity, 1],
      [1, nan],
      [1, infinity],
      [-infinity, infinity],
      [nan, infinity],
      [infinity, nan],
    ] as const)
      expect([value, wanted, passes([1, value], [1, wanted])]).toEqual([value, wanted, false]);
  });

  it("leave what is not finite out of the numbers", () => {
    expect(compare([1, nan, 2], [1, nan, 2])).toMatchObject({ ratio: 0, maxAbs: 0 });
    expect(compare([nan, nan], [nan, nan])).toMatchObject({ ratio: 0, scale: 0, finite: true });
    expect(passes([1.5, nan], [1, nan])).toBe(false);
  });

  it("demand exact zeros where the reference has nothing else", () => {
    expect(passes([0, 0], [0, 0])).toBe(true);
    expect(passes([0, -0], [0, 0])).toBe(true);
    expect(passes([0, 1e-300], [0, 0])).toBe(false);
    expect(passes([nan, 0], [0, 0])).toBe(false);
  });

  it("bound the ratio, and each error by its spread", () => {
    expect(within(compare([1.05, 1.05], [1, 1]), 0.1, 12)).toBe(true);
    expect(within(compare([1.11, 1.11], [1, 1]), 0.1, 12)).toBe(false);
    expect(within(compare([1.11, 1.11], [1, 1]), 0.1, 12, 1.2)).toBe(true);
    const ones = new Array<number>(1000).fill(1);
    const spike = ones.map((one, i) => (i === 500 ? 1.13 : one));
    expect(compare(spike, ones).ratio).toBeLessThan(0.01);
    expect(within(compare(spike, ones), 0.01, 12)).toBe(false);
    expect(within(compare(spike, ones), 0.01, 14)).toBe(true);
  });

  it("need as many numbers as the reference has", () => {
    expect(() => compare([1], [1, 2])).toThrow(new RangeError("compare: lengths must be equal, got 1 and 2"));
  });
});
