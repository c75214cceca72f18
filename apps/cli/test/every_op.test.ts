import { join } from "node:path";
import {
  Device,
  DTYPES,
  type Dtype,
  opParams,
  type RawArray,
  readSafetensors,
  Tensor,
  writeSafetensors,
} from "@mlxts/core";
import { type Case, opArguments, roundedInputs, type Suite } from "@mlxts/core/testing";
import { afterAll, describe, expect, it } from "vitest";
import { exampleOf } from "../src/op_describe.ts";
import { type AnyOp, publicOps } from "../src/op_list.ts";
import { inProcess, mlxts, testFolder } from "./helpers.ts";

const folder = testFolder();
const device = Device.open();
afterAll(() => device.dispose());

const ops = [...publicOps().values()];
const suites = (
  await Promise.all(
    [...new Set(ops.map((op) => op.package))].map(
      (name) => import(`${name}/testing`) as Promise<{ suites: readonly Suite[] }>,
    ),
  )
).flatMap((module) => module.suites);

/** One case, the smallest, for each combination of inputs, parameters and outputs that are given. */
function kindsOf(suite: Suite): Case[] {
  const kinds = new Map<string, Case>();
  const size = ({ inputs }: Case) => Object.values(inputs).reduce((sum, { data }) => sum + data.length, 0);
  for (const each of suite.cases) {
    const names = [each.inputs, each.options ?? {}, each.ask ?? {}].map((object) => Object.keys(object).sort());
    const kind = JSON.stringify(names);
    const known = kinds.get(kind);
    if (!known || size(each) < size(known)) kinds.set(kind, each);
  }
  return [...kinds.values()];
}

/** Outputs that are possible with the parameters of a case. */
const available = ({ op }: AnyOp, options: object) =>
  Object.keys(op.outputs).filter((name) => op.outputs[name]?.needs?.every((option) => option in options) ?? true);

type Input = readonly [name: string, tensor: { dtype: Dtype; shape: readonly number[]; data: RawArray }];

/** The tensors of a case: its inputs, and the outputs that must be passed to the op. */
function tensorsOf({ op }: Suite, testCase: Case): Input[] {
  const act = testCase.dtypes?.[0] ?? "f32";
  const inputs = Object.entries(roundedInputs(testCase, act)).map(
    ([name, { dtype, shape, raw }]): Input => [name, { dtype, shape, data: raw }],
  );
  const passed = Object.entries(testCase.ask ?? {}).filter(([name]) => !op.op.outputs[name]?.optional);
  const outputs = passed.map(([name, asked]): Input => {
    const dtype = asked.dtype === "act" ? act : asked.dtype;
    const size = asked.shape.reduce((a, b) => a * b, 1);
    return [name, { dtype, shape: asked.shape, data: new DTYPES[dtype].array(size) }];
  });
  // An output that a case gives contents is among its inputs.
  return [...inputs, ...outputs.filter(([name]) => !Object.hasOwn(testCase.inputs, name))];
}

/** The outputs of the op when it is called from code, those that `wanted` names included. */
async function called(suite: Suite, testCase: Case, wanted: readonly string[]) {
  const { op } = suite;
  const tensors = Object.fromEntries(
    tensorsOf(suite, testCase).map(([name, { dtype, shape, data }]) => [
      name,
      device.tensor(dtype, shape, data as never),
    ]),
  );
  const { inputs, options } = opArguments(op.op, tensors, testCase.options ?? {});
  for (const name of wanted) if (op.op.outputs[name]?.optional) inputs[name] = true;
  const encoder = device.encoder();
  const result = op(encoder, inputs, options);
  await encoder.commit();
  const all = result instanceof Tensor ? { [Object.keys(op.op.outputs)[0] as string]: result } : result;
  return Object.fromEntries(
    await Promise.all(
      wanted.map(async (name) => {
        const tensor = (all as Record<string, Tensor>)[name] as Tensor;
        return [name, { dtype: tensor.dtype, shape: [...tensor.shape], data: await tensor.read() }];
      }),
    ),
  );
}

/** The file of a case, and the command line that runs it. */
function commandOf(suite: Suite, testCase: Case, file: string) {
  const [input, out] = [join(folder, `${file}.in`), join(folder, `${file}.out`)];
  writeSafetensors(input, tensorsOf(suite, testCase));
  const params = Object.entries(testCase.options ?? {}).flatMap(([name, value]) => ["--param", `${name}=${value}`]);
  return { out, args: ["op", suite.op.op.name, "--in", input, ...params, "--out", out] };
}

const all = suites.map((suite) => [suite.op.op.name, suite] as const);

describe("mlxts op runs", () => {
  it("only ops that have a suite", () => {
    expect([...new Set(suites.map(({ op }) => op.op.name))].sort()).toEqual(ops.map(({ op }) => op.op.name).sort());
  });

  it.each(all)("%s on every kind of case, as code does", async (name, suite) => {
    for (const [i, testCase] of kindsOf(suite).entries()) {
      const { out, args } = commandOf(suite, testCase, `${name}-${i}`);
      const check = async (wanted: readonly string[], ...chosen: string[]) => {
        const { status, stderr } = await inProcess(...args, ...chosen);
        let expected: unknown;
        try {
          expected = await called(suite, testCase, wanted);
        } catch (error) {
          expect([status, stderr], testCase.name).toEqual([1, `InvalidArgument: ${(error as Error).message}\n`]);
          return false;
        }
        expect([status, stderr], testCase.name).toEqual([0, ""]);
        expect(Object.fromEntries(readSafetensors(out).tensors), testCase.name).toEqual(expected);
        return true;
      };
      if (await check(available(suite.op, testCase.options ?? {}))) continue;
      // With the values of these parameters not every output is possible; the case says which are.
      const { outputs } = suite.op.op;
      const wanted = Object.keys(outputs).filter((each) => !outputs[each]?.optional || testCase.ask?.[each]);
      expect(await check(wanted, "--outputs", wanted.join(",")), testCase.name).toBe(true);
    }
  });

  it.each(all.filter(([name]) => ["gatedDeltaRule", "gatedDeltaRuleRecurrent", "kvCacheAppend"].includes(name)))(
    "%s in a process of its own",
    (name, suite) => {
      const { args } = commandOf(suite, kindsOf(suite)[0] as Case, `${name}-own`);
      expect(mlxts(...args)).toMatchObject({ status: 0, stderr: "" });
    },
  );
});

/** What the options of an op that kernels take as f32 cannot be, though an f64 can. */
const BEYOND_F32 = [1e39, -1e39, Number.MIN_VALUE, -Number.MIN_VALUE];

describe("numbers that f32 cannot hold are refused before anything is recorded", () => {
  // Some suites have an op of their own around a public one.
  const own = ops.flatMap(({ op }) => suites.find((suite) => suite.op === op) ?? []);
  const numbers = own.flatMap((suite) =>
    opParams(suite.op.op)
      .filter(([, spec]) => spec.kind === "number" && !spec.integer && !spec.f64)
      .map(([param]) => [suite.op.op.name, param, suite] as const),
  );

  it("in every op that takes such numbers", () => {
    const names = new Set(numbers.map(([name, param]) => `${name} ${param}`));
    for (const each of [
      "rmsNorm eps",
      "sdpa scale",
      "moeRoute scale",
      "mlaAttention softmaxScale",
      "mlaPrefill softmaxScale",
    ])
      expect([...names]).toContain(each);
  });

  it.each(numbers)("%s: %s", (_, param, suite) => {
    const [testCase] = kindsOf(suite) as [Case];
    const tensors = Object.fromEntries(
      tensorsOf(suite, testCase).map(([name, { dtype, shape, data }]) => [
        name,
        device.tensor(dtype, shape, data as never),
      ]),
    );
    const failure = (value: number, encoder = device.encoder()): unknown => {
      const { inputs, options } = opArguments(suite.op.op, tensors, { ...testCase.options, [param]: value });
      try {
        suite.op(encoder, inputs, options);
      } catch (error) {
        return error;
      }
      return undefined;
    };
    const encoder = device.encoder();
    for (const value of BEYOND_F32)
      if (Math.abs(value) > 1 || failure(0))
        expect(failure(value, encoder), `${value}`).toMatchObject({
          code: "InvalidArgument",
          fault: { argument: param },
        });
    expect(encoder.toJSON().dispatches).toBe(0);
  });
});

describe("mlxts op NAME", () => {
  it.each(ops.map((each) => [each.op.op.name, each.op] as const))("describes %s", async (name, { op }) => {
    const { status, stdout } = await inProcess("op", name);
    expect(status).toBe(0);
    for (const each of [
      ...Object.keys(op.inputs).filter((key) => !("tensors" in (op.inputs[key] ?? {}))),
      ...Object.keys(op.params),
      ...Object.keys(op.outputs),
    ])
      expect(stdout).toMatch(new RegExp(`^ {2}${each} `, "m"));
    expect(stdout).toContain(op.summary);
    expect(stdout.trimEnd().endsWith(exampleOf(op))).toBe(true);
    expect(JSON.parse((await inProcess("op", name, "--json")).stdout)).toMatchObject({ name, summary: op.summary });
  });
});
