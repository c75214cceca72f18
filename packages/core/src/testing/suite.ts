import type { Device } from "../api.ts";
import { DTYPES, type Dtype, decodeNumbers, encodeNumbers, type FloatDtype, isFloat, type RawArray } from "../dtype.ts";
import type { Case, ReferenceFunction, Suite } from "./case.ts";
import { dtypesOf, suiteCases, verdict } from "./conformance.ts";
import { concrete, optionsOf, type Prepared, prepare, references } from "./run_case.ts";

export interface SuiteTest {
  name: string;
  run(): Promise<void>;
}

/**
 * The tests of a suite as plain functions, for any runner.
 * Each case runs on `device` and again on each of `others` (fewer threads, other orders, other scratch contents): the
 * bits must be equal. A mutant fails where no case tells it from the right op.
 */
export function suiteTests(
  suite: Suite,
  devices: () => { device: Device; others: readonly Device[] },
  options: { arenaBytes?: number; keep?: boolean } = {},
): SuiteTest[] {
  const tests: SuiteTest[] = suiteCases(suite, options).map(({ op, dtype, name, run }) => ({
    name: `${op} ${dtype} ${name}`,
    run: async () => {
      const wrong = (await run(devices())).outputs.find(({ pass }) => !pass);
      if (wrong) throw new Error(wrong.message);
    },
  }));
  const mutants = Object.entries(suite.mutants ?? {});
  let survivors: ReadonlySet<string> | undefined;
  for (const [mutant] of mutants)
    tests.push({
      name: `${suite.op.op.name} rejects the mutant: ${mutant}`,
      run: async () => {
        survivors ??= survivingMutants(suite, mutants, options.keep);
        if (survivors.has(mutant)) throw new Error("no case tells this wrong implementation from the right one");
      },
    });
  return tests;
}

/** The dtype of an output as the case or the op's declaration has it. */
function outputDtype(suite: Suite, testCase: Case, act: FloatDtype, name: string): Dtype {
  const rule = suite.op.op.outputs[name]?.dtype;
  if (!Array.isArray(rule)) return concrete(testCase.ask?.[name]?.dtype ?? "act", act);
  const [first] = rule as string[];
  const other = first?.startsWith("=") ? first.slice(1) : undefined;
  const dtype = other === undefined ? (first as Dtype) : (testCase.inputs[other] ?? testCase.ask?.[other])?.dtype;
  return concrete(dtype ?? "act", act);
}

const size = (testCase: Case) => Object.values(testCase.inputs).reduce((sum, { data }) => sum + data.length, 0);

/** The mutants that no case tells from the op. Small cases first; each is prepared once for all mutants that are left. */
function survivingMutants(
  suite: Suite,
  mutants: readonly [string, ReferenceFunction][],
  keep = false,
): ReadonlySet<string> {
  const left = new Map(mutants);
  for (const testCase of suite.cases.filter(({ only }) => only === undefined).sort((a, b) => size(a) - size(b)))
    for (const act of dtypesOf(suite, testCase)) {
      if (left.size === 0) return new Set();
      const prepared = prepare(suite, testCase, act, keep);
      for (const [mutant, wrong] of left) if (mutantFails(prepared, wrong)) left.delete(mutant);
    }
  return new Set(left.keys());
}

function mutantFails(prepared: Prepared, wrong: ReferenceFunction): boolean {
  const { suite, testCase, act } = prepared;
  const outputs = wrong(references(prepared.inputs), optionsOf(testCase), act);
  return Object.entries(prepared.expected).some(([name, ref]) => {
    const out = outputs[name];
    if (!out) return false;
    const dtype = outputDtype(suite, testCase, act, name);
    return !verdict(prepared, name, dtype, decodeNumbers(dtype, stored(dtype, out.data)), ref.data, 1.2).pass;
  });
}

/** Numbers as a kernel stores them. A wrong implementation may give integers that do not fit; these wrap around. */
function stored(dtype: Dtype, data: Float64Array): RawArray {
  const raw = new DTYPES[dtype].array(data.length);
  if (isFloat(dtype) || raw instanceof BigInt64Array) return encodeNumbers(dtype, data);
  raw.set(data);
  return raw;
}
