import type { Arena } from "../arena.ts";
import type { Device } from "../device.ts";
import {
  DTYPES,
  type Dtype,
  decodeNumbers,
  encodeNumbers,
  FLOATS,
  type FloatDtype,
  isFloat,
  type RawArray,
} from "../dtype.ts";
import type { CommandEncoder } from "../encoder.ts";
import { inputTensors, type OpDescriptor, opParams } from "../op.ts";
import { Tensor } from "../tensor.ts";
import { BARS, compare, type ErrorClass, within } from "./metric.ts";

/** A tensor as references see it: exact numbers in f64. */
export interface Reference64 {
  shape: readonly number[];
  data: Float64Array;
}

/** An input of a case. `act` stands for the dtype under test; data of float dtypes is rounded before anybody sees it. */
export interface CaseInput {
  dtype: Dtype | "act";
  shape: readonly number[];
  data: ArrayLike<number>;
}

export interface Case {
  name: string;
  inputs: Record<string, CaseInput>;
  options?: Record<string, unknown>;
  /** Default: the suite's. */
  errorClass?: ErrorClass | Record<string, ErrorClass>;
  /** Only these activation dtypes. */
  dtypes?: readonly FloatDtype[];
  /** Optional outputs to ask for, with their shapes and dtypes. */
  ask?: Record<string, { dtype: Dtype | "act"; shape: readonly number[] }>;
  /** Outputs that are passed as the view of an input. */
  inPlace?: Record<string, string>;
}

export type ReferenceFunction = (
  inputs: Record<string, Reference64>,
  options: Record<string, never>,
  dtype: FloatDtype,
) => Record<string, Reference64>;

// biome-ignore lint/suspicious/noExplicitAny: ops have differing signatures; their arguments come from the case
type AnyOp = ((encoder: CommandEncoder, inputs: any, options?: any) => unknown) & { readonly op: OpDescriptor };

/** What a suite proves of an op: one list of cases for every device and dtype, and wrong implementations it must reject. */
export interface Suite {
  op: AnyOp;
  /** The op in f64, from the inputs as rounded; unrounded outputs. */
  reference: ReferenceFunction;
  cases: readonly Case[];
  errorClass: ErrorClass | Record<string, ErrorClass>;
  /** Default: f32, f16 and bf16. */
  dtypes?: readonly FloatDtype[];
  /** Plausible wrong implementations, reference-side. Each must fail at least one case by a factor of 1.2. */
  mutants?: Record<string, ReferenceFunction>;
}

export interface SuiteTest {
  name: string;
  run(): Promise<void>;
}

const GUARD = 64;
/** Elements by which every second run starts later, where the device can bind that: no vector is aligned there. */
const SHIFT = 3;

interface Placed {
  tensor: Tensor;
  whole: Tensor;
}

/** A tensor inside a larger one with guard elements on both sides, so that offsets matter and overruns show. */
function place(device: Device, dtype: Dtype, shape: readonly number[], shifted: boolean, data?: RawArray): Placed {
  const size = shape.reduce((a, b) => a * b, 1);
  const unit = DTYPES[dtype].bytes;
  const shift = shifted && ((GUARD + SHIFT) * unit) % device.limits.bufferOffsetAlignment === 0 ? SHIFT : 0;
  const whole = device.tensor(dtype, [size + shift + 2 * GUARD]);
  const bytes = new Uint8Array(whole.bytes).fill(0xff);
  if (data) bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), (GUARD + shift) * unit);
  whole.buffer.write(bytes);
  return { whole, tensor: whole.view(GUARD + shift, shape) };
}

async function guardsIntact({ whole, tensor }: Placed): Promise<boolean> {
  const bytes = new Uint8Array(await whole.buffer.read());
  const start = tensor.byteOffset - whole.byteOffset;
  return (
    bytes.subarray(0, start).every((b) => b === 0xff) && bytes.subarray(start + tensor.bytes).every((b) => b === 0xff)
  );
}

const concrete = (dtype: Dtype | "act", act: FloatDtype): Dtype => (dtype === "act" ? act : dtype);

/** The inputs of a case as the op gets them: rounded raw arrays, and the same numbers for the reference. */
export function roundedInputs(
  testCase: Case,
  act: FloatDtype,
): Record<string, { dtype: Dtype; shape: readonly number[]; raw: RawArray; reference: Reference64 }> {
  return Object.fromEntries(
    Object.entries(testCase.inputs).map(([name, input]) => {
      const dtype = concrete(input.dtype, act);
      const raw = encodeNumbers(dtype, input.data);
      return [
        name,
        { dtype, shape: input.shape, raw, reference: { shape: input.shape, data: decodeNumbers(dtype, raw) } },
      ];
    }),
  );
}

function references(testCase: Case, act: FloatDtype): Record<string, Reference64> {
  return Object.fromEntries(
    Object.entries(roundedInputs(testCase, act)).map(([name, { reference }]) => [name, reference]),
  );
}

/** Arguments of an op call from flat tensors and options: records are put together by the descriptor. */
export function opArguments(
  descriptor: OpDescriptor,
  tensors: Record<string, Tensor>,
  options: Record<string, unknown>,
): { inputs: Record<string, unknown>; options: Record<string, unknown> } {
  const inputs: Record<string, unknown> = { ...tensors };
  const rest = { ...options };
  const intoRecord = (record: string, name: string, value: unknown) => {
    inputs[record] = { ...((inputs[record] as object | undefined) ?? {}), [name]: value };
  };
  for (const [name, , record] of inputTensors(descriptor)) {
    if (record === undefined || !(name in tensors)) continue;
    intoRecord(record, name, tensors[name]);
    delete inputs[name];
  }
  for (const [name, , record] of opParams(descriptor)) {
    if (record === undefined || !(name in rest)) continue;
    intoRecord(record, name, rest[name]);
    delete rest[name];
  }
  return { inputs, options: rest };
}

interface Run {
  outputs: Record<string, RawArray>;
  dtypes: Record<string, Dtype>;
}

async function runCase(suite: Suite, testCase: Case, act: FloatDtype, device: Device, arena?: Arena): Promise<Run> {
  // Each case starts at both offsets, in one dtype or another.
  const shifted = (suite.cases.indexOf(testCase) + FLOATS.indexOf(act)) % 2 === 1;
  const given = roundedInputs(testCase, act);
  const placed: Record<string, Placed> = {};
  for (const [name, { dtype, shape, raw }] of Object.entries(given))
    placed[name] = place(device, dtype, shape, shifted, raw);
  const outputs: Record<string, Placed> = {};
  const first = suite.reference(references(testCase, act), (testCase.options ?? {}) as Record<string, never>, act);
  for (const [name, spec] of Object.entries(suite.op.op.outputs)) {
    const shape = testCase.ask?.[name]?.shape ?? (spec.optional ? undefined : first[name]?.shape);
    if (!shape || testCase.inPlace?.[name] !== undefined) continue;
    const rule = Array.isArray(spec.dtype) ? (spec.dtype[0] as string) : undefined;
    const asked = testCase.ask?.[name]?.dtype;
    // Outputs with a dtype that depends on options are left to the op unless the case names it.
    const dtype = asked
      ? concrete(asked, act)
      : rule === undefined
        ? undefined
        : rule.startsWith("=")
          ? given[rule.slice(1)]?.dtype
          : (rule as Dtype);
    if (dtype) outputs[name] = place(device, dtype, shape, shifted);
  }
  const tensors = Object.fromEntries(
    [...Object.entries(placed), ...Object.entries(outputs)].map(([name, { tensor }]) => [name, tensor]),
  );
  for (const [output, input] of Object.entries(testCase.inPlace ?? {})) tensors[output] = tensors[input] as Tensor;
  arena?.reset();
  const encoder = device.encoder(arena ? { arena } : {});
  const call = opArguments(suite.op.op, tensors, testCase.options ?? {});
  const result = suite.op(encoder, call.inputs, call.options);
  await encoder.commit();
  const results: Record<string, Tensor | undefined> =
    result instanceof Tensor
      ? { [Object.keys(suite.op.op.outputs)[0] as string]: result }
      : (result as Record<string, Tensor>);
  const run: Run = { outputs: {}, dtypes: {} };
  for (const [name, tensor] of Object.entries(results)) {
    if (!tensor) continue;
    run.outputs[name] = await tensor.read();
    run.dtypes[name] = tensor.dtype;
    if (testCase.inPlace?.[name] === undefined) {
      const expected = first[name]?.shape;
      if (expected && expected.join() !== tensor.shape.join())
        throw new Error(`\`${name}\` has shape [${tensor.shape}], the reference [${expected}]`);
    }
  }
  for (const [name, p] of [...Object.entries(placed), ...Object.entries(outputs)])
    if (!(await guardsIntact(p))) throw new Error(`\`${name}\`: elements outside the view were written`);
  const overwritten = new Set(Object.values(testCase.inPlace ?? {}));
  for (const [name, { raw }] of Object.entries(given)) {
    if (overwritten.has(name)) continue;
    const now = await (placed[name] as Placed).tensor.read();
    if (!sameBytes(now, raw)) throw new Error(`\`${name}\`: an input was modified`);
  }
  for (const p of [...Object.values(placed), ...Object.values(outputs)]) p.whole.dispose();
  return run;
}

export function sameBytes(a: RawArray, b: RawArray): boolean {
  const x = new Uint8Array(a.buffer, a.byteOffset, a.byteLength);
  const y = new Uint8Array(b.buffer, b.byteOffset, b.byteLength);
  return x.length === y.length && x.every((byte, i) => byte === y[i]);
}

function classOf(suite: Suite, testCase: Case, output: string): ErrorClass {
  const errorClass = testCase.errorClass ?? suite.errorClass;
  const found = typeof errorClass === "string" ? errorClass : errorClass[output];
  if (!found) throw new Error(`no error class for output \`${output}\``);
  return found;
}

/** Whether outputs (as numbers) pass against the reference. */
function verdict(
  suite: Suite,
  testCase: Case,
  act: FloatDtype,
  name: string,
  dtype: Dtype,
  out: ArrayLike<number>,
  ref: Float64Array,
  factor = 1,
): { pass: boolean; text: string } {
  const errorClass = classOf(suite, testCase, name);
  const key: FloatDtype = isFloat(dtype)
    ? errorClass === "P" || errorClass === "H" || errorClass === "A"
      ? act
      : dtype
    : "f32";
  if (errorClass === "exact" || !isFloat(dtype)) {
    const rounded = decodeNumbers(dtype, encodeNumbers(dtype, ref));
    const at = rounded.findIndex((value, i) => !Object.is(value, out[i]));
    return { pass: at < 0, text: at < 0 ? "" : `\`${name}\`[${at}] is ${out[at]}, must be ${rounded[at]}` };
  }
  const { spread } = BARS[errorClass];
  const bar = BARS[errorClass][key];
  const c = compare(out, ref);
  return {
    pass: within(c, bar, spread, factor),
    text: `\`${name}\`: ratio ${c.ratio.toExponential(2)} (bar ${bar}), max |err| ${c.maxAbs.toExponential(2)} at rms ${c.scale.toExponential(2)}${c.finite ? "" : ", not finite where the reference is"}`,
  };
}

/**
 * The tests of a suite as plain functions, for any runner.
 * Each case runs on `device` and again on each of `others` (fewer threads, other orders, other scratch contents): the
 * bits must be equal.
 */
export function suiteTests(
  suite: Suite,
  devices: () => { device: Device; others: readonly Device[] },
  { arenaBytes = 1 << 22 }: { arenaBytes?: number } = {},
): SuiteTest[] {
  let arena: Arena | undefined;
  const dtypesOf = (testCase: Case) =>
    (testCase.dtypes ?? suite.dtypes ?? (["f32", "f16", "bf16"] as const)).filter(
      (dtype) => suite.dtypes?.includes(dtype) ?? true,
    );
  const tests: SuiteTest[] = suite.cases.flatMap((testCase) =>
    dtypesOf(testCase).map((act) => ({
      name: `${suite.op.op.name} ${act} ${testCase.name}`,
      run: async () => {
        const { device, others } = devices();
        arena ??= device.arena(arenaBytes);
        const run = await runCase(suite, testCase, act, device, arena);
        const again: Run[] = [];
        for (const other of others) again.push(await runCase(suite, testCase, act, other));
        const expected = suite.reference(
          references(testCase, act),
          (testCase.options ?? {}) as Record<string, never>,
          act,
        );
        for (const [name, ref] of Object.entries(expected)) {
          const raw = run.outputs[name];
          if (!raw) {
            const spec = suite.op.op.outputs[name];
            if (spec?.optional && !testCase.ask?.[name]) continue;
            throw new Error(`\`${name}\`: the reference has it, the op returned none`);
          }
          if (!again.every(({ outputs }) => sameBytes(raw, outputs[name] as RawArray)))
            throw new Error(`\`${name}\`: bits differ between thread counts, orders or scratch contents`);
          const dtype = run.dtypes[name] as Dtype;
          const { pass, text } = verdict(suite, testCase, act, name, dtype, decodeNumbers(dtype, raw), ref.data);
          if (!pass) throw new Error(text);
        }
      },
    })),
  );
  for (const [mutant, wrong] of Object.entries(suite.mutants ?? {}))
    tests.push({
      name: `${suite.op.op.name} rejects the mutant: ${mutant}`,
      run: async () => {
        const caught = suite.cases.some((testCase) =>
          dtypesOf(testCase).some((act) => mutantFails(suite, testCase, act, wrong)),
        );
        if (!caught) throw new Error("no case tells this wrong implementation from the right one");
      },
    });
  return tests;
}

function mutantFails(suite: Suite, testCase: Case, act: FloatDtype, wrong: ReferenceFunction): boolean {
  const options = (testCase.options ?? {}) as Record<string, never>;
  const right = suite.reference(references(testCase, act), options, act);
  const outputs = wrong(references(testCase, act), options, act);
  return Object.entries(right).some(([name, ref]) => {
    const out = outputs[name];
    if (!out) return false;
    const rule = suite.op.op.outputs[name]?.dtype;
    const input =
      Array.isArray(rule) && typeof rule[0] === "string" && rule[0].startsWith("=")
        ? testCase.inputs[rule[0].slice(1)]?.dtype
        : Array.isArray(rule)
          ? (rule[0] as Dtype)
          : (testCase.ask?.[name]?.dtype ?? "act");
    const dtype = concrete(input ?? "act", act);
    return !verdict(
      suite,
      testCase,
      act,
      name,
      dtype,
      decodeNumbers(dtype, encodeNumbers(dtype, out.data)),
      ref.data,
      1.2,
    ).pass;
  });
}
