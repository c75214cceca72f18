import type { Arena, Device } from "../api.ts";
import type { DeviceKind } from "../device_options.ts";
import { type Dtype, decodeNumbers, encodeNumbers, FLOATS, type FloatDtype, isFloat, type RawArray } from "../dtype.ts";
import type { Case, Suite } from "./case.ts";
import { BARS, type Comparison, compare, type ErrorClass, within } from "./metric.ts";
import { type Prepared, prepare, type Run, runCase, sameBytes } from "./run_case.ts";

/** How one output of a case compares with its reference. */
export interface OutputResult {
  output: string;
  pass: boolean;
  /** What is wrong; empty where it passes. */
  message: string;
  /** Absent where there was nothing to compare. */
  compared?: Comparison & { dtype: Dtype; errorClass: ErrorClass; bar: number };
}

export interface CaseResult {
  outputs: readonly OutputResult[];
  /** With `trace`: each kernel's symbol once, and the time of all dispatches on the device. */
  kernels: readonly string[];
  deviceMs: number;
}

/** A case of a suite in one dtype. */
export interface SuiteCase {
  op: string;
  dtype: FloatDtype;
  name: string;
  /**
   * Runs it on `device` and again on each of `others`; with `trace` once more on `device`, one dispatch at a time.
   * The bits must be equal. Throws what the op throws, and an error when the op wrote outside its outputs.
   */
  run(devices: { device: Device; others: readonly Device[] }, options?: { trace?: boolean }): Promise<CaseResult>;
}

function classOf(suite: Suite, testCase: Case, output: string): ErrorClass {
  const errorClass = testCase.errorClass ?? suite.errorClass;
  const found = typeof errorClass === "string" ? errorClass : errorClass[output];
  if (!found) throw new Error(`no error class for output \`${output}\``);
  return found;
}

/** Judges numbers of an output against the reference; `factor` widens the bar. */
export function verdict(
  { suite, testCase, act }: Pick<Prepared, "suite" | "testCase" | "act">,
  output: string,
  dtype: Dtype,
  out: ArrayLike<number>,
  ref: Float64Array,
  factor = 1,
): OutputResult {
  const errorClass = classOf(suite, testCase, output);
  if (errorClass === "exact" || !isFloat(dtype)) {
    const rounded = decodeNumbers(dtype, encodeNumbers(dtype, ref));
    const at = rounded.findIndex((value, i) => !Object.is(value, out[i]));
    return {
      output,
      pass: at < 0,
      message: at < 0 ? "" : `\`${output}\`[${at}] is ${out[at]}, must be ${rounded[at]}`,
      // A mutant's output may have another length.
      ...(out.length === ref.length && {
        compared: { ...compare(out, rounded), dtype, errorClass: "exact", bar: 0 },
      }),
    };
  }
  const byActivations = errorClass === "P" || errorClass === "H" || errorClass === "A";
  const { spread, [byActivations ? act : dtype]: bar } = BARS[errorClass];
  const c = compare(out, ref);
  const pass = within(c, bar, spread, factor);
  const [ratio, maxAbs, scale] = [c.ratio, c.maxAbs, c.scale].map((value) => value.toExponential(2));
  const text = `ratio ${ratio} (bar ${bar}), max |err| ${maxAbs} at rms ${scale}`;
  return {
    output,
    pass,
    message: pass ? "" : `\`${output}\`: ${text}${c.finite ? "" : ", not finite where the reference is"}`,
    compared: { ...c, dtype, errorClass, bar },
  };
}

/** The dtypes in which a case runs. */
export const dtypesOf = (suite: Suite, testCase: Case): readonly FloatDtype[] =>
  (testCase.dtypes ?? suite.dtypes ?? FLOATS).filter((dtype) => suite.dtypes?.includes(dtype) ?? true);

/** The outputs of the first run against the reference and the other runs. */
function judge(prepared: Prepared, run: Run, others: readonly Run[], traced: Run | undefined): OutputResult[] {
  const { suite, testCase, expected } = prepared;
  const results: OutputResult[] = [];
  for (const [output, ref] of Object.entries(expected)) {
    const wrong = (text: string) => results.push({ output, pass: false, message: `\`${output}\`: ${text}` });
    const raw = run.outputs[output];
    const differs = ({ outputs }: Run) => !sameBytes(raw as RawArray, outputs[output] as RawArray);
    const optional = suite.op.op.outputs[output]?.optional && !testCase.ask?.[output];
    if (!raw) {
      if (!optional) wrong("the reference has it, the op returned none");
    } else if (others.some(differs)) wrong("bits differ between thread counts, orders or scratch contents");
    else if (traced && differs(traced)) wrong("bits differ when it runs again, one dispatch at a time");
    else {
      const dtype = run.dtypes[output] as Dtype;
      results.push(verdict(prepared, output, dtype, decodeNumbers(dtype, raw), ref.data));
    }
  }
  return results;
}

/** The cases of a suite, in each of their dtypes, and with those that only this kind of device runs. */
export function suiteCases(
  suite: Suite,
  {
    arenaBytes = 1 << 22,
    keep = false,
    device: kind,
  }: { arenaBytes?: number; keep?: boolean; device?: DeviceKind } = {},
): SuiteCase[] {
  let arena: Arena | undefined;
  const cases = suite.cases.filter(({ only }) => only === undefined || only === kind);
  return cases.flatMap((testCase) =>
    dtypesOf(suite, testCase).map((dtype) => ({
      op: suite.op.op.name,
      dtype,
      name: testCase.name,
      run: async ({ device, others }, { trace = false } = {}) => {
        if (arena?.device !== device) arena = device.arena(arenaBytes);
        const prepared = prepare(suite, testCase, dtype, keep);
        const run = await runCase(prepared, device, { arena });
        const again: Run[] = [];
        for (const other of others) again.push(await runCase(prepared, other));
        const traced = trace ? await runCase(prepared, device, { trace }) : undefined;
        const dispatches = traced?.dispatches ?? [];
        return {
          outputs: judge(prepared, run, again, traced),
          kernels: [...new Set(dispatches.map(({ kernel }) => kernel))],
          deviceMs: dispatches.reduce((sum, { us }) => sum + us, 0) / 1000,
        };
      },
    })),
  );
}
