import type { Arena, Device, Tensor } from "../api.ts";
import { DTYPES, type Dtype, decodeNumbers, encodeNumbers, FLOATS, type FloatDtype, type RawArray } from "../dtype.ts";
import { inputTensors, opParams } from "../op_descriptor.ts";
import type { OpDescriptor } from "../op_types.ts";
import { Tensor as TensorClass } from "../tensor.ts";
import type { Case, Reference64, Suite } from "./case.ts";
import { keptReference } from "./kept_references.ts";

const GUARD = 64;
/** Every second run starts this many elements later, where the device can bind that, so that no vector is aligned. */
const SHIFT = 3;

interface Placed {
  tensor: Tensor;
  whole: Tensor;
  guard: number;
}

/**
 * A tensor inside a larger one with guard elements on both sides, so that wrong offsets and overruns show. Everything is
 * filled with NaN but the guards of outputs: an element computed from an input's guard is NaN too, and must show there.
 */
function place(
  device: Device,
  dtype: Dtype,
  shape: readonly number[],
  { shifted, anyByte = false }: { shifted: boolean; anyByte?: boolean },
  data?: RawArray,
): Placed {
  const size = shape.reduce((a, b) => a * b, 1);
  const unit = DTYPES[dtype].bytesPerElement;
  const shift = shifted && ((GUARD + SHIFT) * unit) % device.limits.bufferOffsetAlignment === 0 ? SHIFT : 0;
  const whole = device.tensor(dtype, [size + shift + 2 * GUARD + 1]);
  const start = (GUARD + shift) * unit + (anyByte ? 1 : 0);
  const tensor = new TensorClass(whole.buffer, dtype, shape, { byteOffset: start, anyByte });
  const guard = data ? 0xff : 0x5a;
  const bytes = new Uint8Array(whole.byteLength).fill(guard).fill(0xff, start, start + tensor.byteLength);
  if (data) bytes.set(bytesOf(data), start);
  whole.buffer.write(bytes);
  return { whole, tensor, guard };
}

/** The bytes of a placed tensor; undefined where some around it were written. */
async function readFenced({ whole, tensor, guard }: Placed): Promise<Uint8Array | undefined> {
  const bytes = new Uint8Array(await whole.buffer.read());
  const start = tensor.byteOffset - whole.byteOffset;
  const end = start + tensor.byteLength;
  const intact = (part: Uint8Array) => part.every((byte) => byte === guard);
  return intact(bytes.subarray(0, start)) && intact(bytes.subarray(end)) ? bytes.subarray(start, end) : undefined;
}

export const concrete = (dtype: Dtype | "act", act: FloatDtype): Dtype => (dtype === "act" ? act : dtype);

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
  for (const [name, , record, part] of inputTensors(descriptor)) {
    if (record === undefined || part === undefined || !(name in tensors)) continue;
    intoRecord(record, part, tensors[name]);
    delete inputs[name];
  }
  for (const [name, , record, part] of opParams(descriptor)) {
    if (record === undefined || part === undefined || !(name in rest)) continue;
    intoRecord(record, part, rest[name]);
    delete rest[name];
  }
  return { inputs, options: rest };
}

const bytesOf = (array: RawArray) => new Uint8Array(array.buffer, array.byteOffset, array.byteLength);

export function sameBytes(a: RawArray, b: RawArray): boolean {
  return Buffer.compare(bytesOf(a), bytesOf(b)) === 0;
}

/** What one run of a case gave. */
export interface Run {
  outputs: Record<string, RawArray>;
  dtypes: Record<string, Dtype>;
  /** With `trace`: the kernels it dispatched, each with its µs on the device. */
  dispatches: readonly { kernel: string; us: number }[];
}

/** A case in one dtype: its inputs, rounded, and what the reference makes of them. */
export interface Prepared {
  suite: Suite;
  testCase: Case;
  act: FloatDtype;
  inputs: ReturnType<typeof roundedInputs>;
  expected: Record<string, Reference64>;
}

/** What was prepared last. A case runs on one device after another, and its reference takes longer than most kernels. */
let last: Prepared | undefined;

/** `keep`: the suite is the one that its package publishes of the op, so that the call says what its reference gives. */
export function prepare(suite: Suite, testCase: Case, act: FloatDtype, keep = false): Prepared {
  if (last?.testCase === testCase && last.act === act && last.suite.reference === suite.reference)
    return { ...last, suite };
  const inputs = roundedInputs(testCase, act);
  const { op, reference } = suite;
  const options = optionsOf(testCase);
  const compute = () => reference(references(inputs), options, act);
  const expected = keep ? keptReference([op.op.name, options, act], inputs, compute) : compute();
  last = { suite, testCase, act, inputs, expected };
  return last;
}

/** Copies, since a reference may write on what it is given. */
export const references = (inputs: ReturnType<typeof roundedInputs>): Record<string, Reference64> =>
  Object.fromEntries(
    Object.entries(inputs).map(([name, { reference }]) => [name, { ...reference, data: reference.data.slice() }]),
  );

export const optionsOf = (testCase: Case) => (testCase.options ?? {}) as Record<string, never>;

/** Outputs that the case provides, fenced; an output with a dtype that depends on options is left to the op unless named. */
function placeOutputs({ suite, testCase, act, inputs, expected }: Prepared, device: Device, shifted: boolean) {
  const outputs: Record<string, Placed> = {};
  for (const [name, spec] of Object.entries(suite.op.op.outputs)) {
    const shape = testCase.ask?.[name]?.shape ?? (spec.optional ? undefined : expected[name]?.shape);
    if (!shape || testCase.inPlace?.[name] !== undefined) continue;
    const rule = Array.isArray(spec.dtype) ? (spec.dtype[0] as string) : undefined;
    const asked = testCase.ask?.[name]?.dtype;
    const dtype = asked
      ? concrete(asked, act)
      : rule?.startsWith("=")
        ? inputs[rule.slice(1)]?.dtype
        : (rule as Dtype | undefined);
    if (dtype) outputs[name] = place(device, dtype, shape, { shifted });
  }
  return outputs;
}

/** Runs a case on a device and checks all but the numbers: shapes, guard elements, inputs left as they were. */
export async function runCase(
  prepared: Prepared,
  device: Device,
  { arena, trace = false }: { arena?: Arena; trace?: boolean } = {},
): Promise<Run> {
  const { suite, testCase, act, inputs, expected } = prepared;
  // Each case starts at both offsets, in one dtype or another.
  const shifted = !testCase.aligned && (suite.cases.indexOf(testCase) + FLOATS.indexOf(act)) % 2 === 1;
  const anyByte = device.gpu ? [] : (testCase.anyByte ?? []);
  const placed: Record<string, Placed> = {};
  for (const [name, { dtype, shape, raw }] of Object.entries(inputs))
    placed[name] = place(device, dtype, shape, { shifted, anyByte: anyByte.includes(name) }, raw);
  const outputs = placeOutputs(prepared, device, shifted);
  const fenced = [...Object.entries(placed), ...Object.entries(outputs)];
  try {
    const tensors = Object.fromEntries(fenced.map(([name, { tensor }]) => [name, tensor]));
    for (const [output, input] of Object.entries(testCase.inPlace ?? {})) tensors[output] = tensors[input] as Tensor;
    arena?.reset();
    const encoder = device.encoder(arena ? { arena } : {});
    const call = opArguments(suite.op.op, tensors, testCase.options ?? {});
    const result = suite.op(encoder, call.inputs, call.options);
    const { dispatches = [] } = await encoder.commit({ profile: trace });
    const results: Record<string, Tensor | undefined> =
      result instanceof TensorClass
        ? { [Object.keys(suite.op.op.outputs)[0] as string]: result }
        : (result as Record<string, Tensor>);
    const run: Run = {
      outputs: {},
      dtypes: {},
      dispatches: dispatches.map(({ label, us }) => ({ kernel: label.slice(label.indexOf("/") + 1), us })),
    };
    for (const [name, tensor] of Object.entries(results)) {
      if (!tensor) continue;
      run.outputs[name] = await tensor.read();
      run.dtypes[name] = tensor.dtype;
      const shape = testCase.inPlace?.[name] === undefined ? expected[name]?.shape : undefined;
      if (shape && shape.join() !== tensor.shape.join())
        throw new Error(`\`${name}\` has shape [${tensor.shape}], the reference [${shape}]`);
    }
    const overwritten = new Set(Object.values(testCase.inPlace ?? {}));
    let modified: string | undefined;
    for (const [name, each] of fenced) {
      const bytes = await readFenced(each);
      if (!bytes) throw new Error(`\`${name}\`: elements outside the view were written`);
      const raw = each === placed[name] && !overwritten.has(name) ? inputs[name]?.raw : undefined;
      if (raw && !sameBytes(bytes, raw)) modified ??= name;
    }
    if (modified !== undefined) throw new Error(`\`${modified}\`: an input was modified`);
    return run;
  } finally {
    for (const [, { whole }] of fenced) whole.dispose();
  }
}
