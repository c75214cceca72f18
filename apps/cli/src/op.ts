import { Device, type OpDescriptor, opParams, type ParamSpec, paramText, Tensor, writeSafetensors } from "@mlxts/core";
import { opArguments } from "@mlxts/core/testing";
import { command, optionalArgument } from "./contract.ts";
import { columns, describeOp, opText } from "./op_describe.ts";
import { type AnyOp, opNames, publicOps, unknownOp } from "./op_list.ts";
import { knownName, readOpTensors } from "./op_tensors.ts";
import { flag, list, names, path, UsageError } from "./options.ts";
import { outputFile } from "./output_file.ts";

function parameter(op: string, name: string, spec: ParamSpec, text: string): string | number | boolean {
  if (spec.kind === "boolean") {
    if (text !== "true" && text !== "false") throw new UsageError(op, name, "be true or false", text);
    return text === "true";
  }
  if (spec.kind === "choice") {
    const value = spec.values.find((candidate) => String(candidate) === text);
    if (value === undefined) throw new UsageError(op, name, `be one of ${spec.values.join(", ")}`, text);
    return value;
  }
  const value = Number(text);
  if (text.trim() === "" || Number.isNaN(value)) throw new UsageError(op, name, "be a number", text);
  return value;
}

/** Refuses a command line that lacks the parameter `name`. */
function checkGiven(op: OpDescriptor, params: object, name: string, spec: ParamSpec, why?: string): void {
  if (name in params) return;
  throw new UsageError(op.name, name, `be given, as --param ${name}=<${paramText(spec)}>`, "nothing", why);
}

/** The values of `key=value`; of equal keys the last one counts. */
function parameters(op: OpDescriptor, given: readonly string[]): Record<string, string | number | boolean> {
  const specs = new Map(opParams(op).map(([name, spec]) => [name, spec]));
  const values = Object.fromEntries(
    given.map((entry) => {
      const [key = "", ...rest] = entry.split("=");
      const name = knownName(key, [...specs.keys()]);
      const spec = specs.get(name);
      if (!spec) {
        const known = [...specs.keys()].join(", ") || "(none)";
        throw new UsageError(op.name, "param", `be key=value with a key of ${known}`, entry);
      }
      return [name, parameter(op.name, name, spec, rest.join("="))];
    }),
  );
  for (const [name, spec] of specs)
    if (spec.default === undefined && !spec.optional) checkGiven(op, values, name, spec);
  return values;
}

/** The outputs to write: the chosen ones, or all except those that need a parameter that is not given. */
function chosenOutputs(op: OpDescriptor, params: object, chosen: readonly string[] | undefined): string[] {
  const known = Object.keys(op.outputs);
  if (chosen === undefined)
    return known.filter((name) => op.outputs[name]?.needs?.every((option) => option in params) ?? true);
  return chosen.map((given) => {
    const name = knownName(given, known);
    if (!known.includes(name))
      throw new UsageError(op.name, "--outputs", `be names of ${known.join(", ")}, separated by commas`, given);
    for (const option of op.outputs[name]?.needs ?? [])
      checkGiven(op, params, option, op.params[option] as ParamSpec, `\`${name}\` needs it`);
    return name;
  });
}

interface OpCall {
  input: string;
  params: readonly string[];
  /** Names of outputs. Default: all except those that need a parameter that is not given. */
  outputs?: readonly string[] | undefined;
  output: string;
}

/** Runs an op on the tensors of a file and writes its outputs to another; returns a line that names them. */
export async function runOp(op: AnyOp, call: OpCall, signal?: AbortSignal): Promise<string> {
  const params = parameters(op.op, call.params);
  const wanted = chosenOutputs(op.op, params, call.outputs);
  using device = Device.open();
  const tensors: Record<string, Tensor> = {};
  for (const [name, { dtype, shape, data }] of readOpTensors(op.op, call.input))
    tensors[name] = device.tensor(dtype, shape, data as never);
  const { inputs, options } = opArguments(op.op, tensors, params);
  for (const name of wanted) if (op.op.outputs[name]?.optional) inputs[name] ??= true;
  const encoder = device.encoder();
  const result = op(encoder, inputs, options);
  await encoder.commit();
  const all = (result instanceof Tensor ? { [Object.keys(op.op.outputs)[0] as string]: result } : result) as Record<
    string,
    Tensor
  >;
  const entries: Parameters<typeof writeSafetensors>[1] = await Promise.all(
    wanted.map(async (name) => {
      const tensor = all[name] as Tensor;
      return [name, { dtype: tensor.dtype, shape: tensor.shape, data: await tensor.read() }] as const;
    }),
  );
  signal?.throwIfAborted();
  writeSafetensors(call.output, entries);
  return [...entries].map(([name, { dtype, shape }]) => `${name} ${dtype} [${shape.join(", ")}]`).join(", ");
}

export const opCommand = command({
  name: "op",
  summary: "Run one op on the tensors of a file, describe an op, or list all ops.",
  arguments: { name: optionalArgument("an op; alone it is described, without one all ops are listed", opNames) },
  options: {
    list: flag("list the ops"),
    json: flag("list or describe as JSON"),
    in: path("<file>", "a .safetensors file with the op's input tensors"),
    param: list("<key=value>", "a parameter of the op", {
      takes: (text) => text.includes("="),
      rule: "be key=value",
    }),
    outputs: names("<names>", "the outputs to write, separated by commas; default: all whose parameters are given"),
    out: path("<file>", "a .safetensors file for the outputs; an older one is replaced"),
    force: flag("replace even the file of --in"),
  },
  notes: [
    "Tensors are found by the names that `mlxts op <name>` shows; initial_state, A_log and w (for weight) are accepted too.",
    "F64, I64, U64 and BOOL tensors are converted to what the op takes where every element is exact.",
  ],
  async run({ name, list, json, in: input, param, outputs, out, force }, signal) {
    const print = (text: string) => process.stdout.write(text);
    const ops = publicOps();
    const runs = input !== undefined || out !== undefined || param.length > 0 || outputs !== undefined || force;
    if (list && (name !== undefined || runs))
      throw new UsageError("op", "--list", "stand alone, or with --json", name ?? "options of a run");
    if (name === undefined) {
      if (runs) throw new UsageError("op", "name", "be the name of an op", "nothing", "`mlxts op --list` names them");
      const all = [...ops.values()].map(describeOp);
      if (json) print(`${JSON.stringify(all, null, 2)}\n`);
      else
        for (const line of columns(all.map(({ name, package: from, summary }) => [name, from, summary])))
          print(`${line}\n`);
      return;
    }
    const found = ops.get(name);
    if (!found) throw unknownOp("op", name);
    if (!runs) {
      print(json ? `${JSON.stringify(describeOp(found), null, 2)}\n` : opText(found));
      return;
    }
    if (json) throw new UsageError("op", "--json", "be given to list or describe", "a run of an op");
    if (input === undefined) throw new UsageError("op", "--in", "be given to run an op", "nothing");
    if (out === undefined) throw new UsageError("op", "--out", "be given to run an op", "nothing");
    const output = outputFile("op", "--out", out, { inputs: [input], force });
    print(`${out}: ${await runOp(found.op, { input, params: param, outputs, output }, signal)}\n`);
  },
});
