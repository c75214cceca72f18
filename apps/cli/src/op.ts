import {
  type CommandEncoder,
  Device,
  inputTensors,
  MlxtsError,
  type OpDescriptor,
  opParams,
  type ParamSpec,
  readSafetensors,
  shapeText,
  Tensor,
  writeSafetensors,
  wrongValue,
} from "@mlxts/core";
import { opArguments } from "@mlxts/core/testing";
import * as deltaRule from "@mlxts/delta-rule";
import * as nn from "@mlxts/nn";
import * as norms from "@mlxts/norms";
import * as quant4 from "@mlxts/quant4";
import type { Command } from "commander";

// biome-ignore lint/suspicious/noExplicitAny: ops have differing signatures; their descriptors check the arguments
type AnyOp = ((encoder: CommandEncoder, inputs: any, options?: any) => unknown) & { readonly op: OpDescriptor };

const PACKAGES = { norms, quant4, "delta-rule": deltaRule, nn };

function isOp(value: unknown): value is AnyOp {
  return typeof value === "function" && "op" in value;
}

/** Every public op of the packages, by name. */
export function publicOps(): Map<string, { op: AnyOp; package: string }> {
  const ops = new Map<string, { op: AnyOp; package: string }>();
  for (const [name, exports] of Object.entries(PACKAGES))
    for (const op of Object.values(exports).filter(isOp)) ops.set(op.op.name, { op, package: `@mlxts/${name}` });
  return ops;
}

/** An op's descriptor as plain data. */
function describe({ op, package: from }: { op: AnyOp; package: string }) {
  const { name, summary, outputs } = op.op;
  const tensor = (spec: {
    shape: Parameters<typeof shapeText>[0];
    optional?: boolean;
    doc?: string;
    dtype: unknown;
  }) => ({
    dtype: typeof spec.dtype === "function" ? "as the options say" : spec.dtype,
    shape: shapeText(spec.shape),
    optional: spec.optional ?? false,
    ...(spec.doc && { doc: spec.doc }),
  });
  return {
    name,
    package: from,
    summary,
    inputs: Object.fromEntries(inputTensors(op.op).map(([key, spec]) => [key, tensor(spec)])),
    params: Object.fromEntries(opParams(op.op).map(([key, spec]) => [key, spec])),
    outputs: Object.fromEntries(
      Object.entries(outputs).map(([key, spec]) => [
        key,
        { ...tensor(spec), ...(spec.inPlace && { inPlace: spec.inPlace }) },
      ]),
    ),
  };
}

/** Tensor names also as contracts and Python write them: `A_log`, `initial_state`, and `w` for a weight. */
function tensorName(given: string, known: readonly string[]): string {
  if (known.includes(given)) return given;
  const camel = given
    .replace(/^[A-Z]/, (c) => c.toLowerCase())
    .replace(/_+([A-Za-z0-9])/g, (_, c: string) => c.toUpperCase());
  if (known.includes(camel)) return camel;
  if (given === "w" && known.includes("weight")) return "weight";
  return given;
}

function parameter(op: string, name: string, spec: ParamSpec, text: string): string | number | boolean {
  if (spec.kind === "boolean") {
    if (text !== "true" && text !== "false") throw wrongValue(op, name, "be true or false", text);
    return text === "true";
  }
  if (spec.kind === "choice") {
    const value = spec.values.find((candidate) => String(candidate) === text);
    if (value === undefined) throw wrongValue(op, name, `be one of ${spec.values.join(", ")}`, text);
    return value;
  }
  const value = Number(text);
  if (text.trim() === "" || Number.isNaN(value)) throw wrongValue(op, name, "be a number", text);
  return value;
}

function options(op: OpDescriptor, given: readonly string[]): Record<string, string | number | boolean> {
  const specs = new Map(opParams(op).map(([name, spec]) => [name, spec]));
  return Object.fromEntries(
    given.map((entry) => {
      const [key = "", ...rest] = entry.split("=");
      const name = tensorName(key, [...specs.keys()]);
      const spec = specs.get(name);
      if (!spec || rest.length === 0)
        throw wrongValue(
          op.name,
          "param",
          `be key=value with a key of ${[...specs.keys()].join(", ") || "(none)"}`,
          entry,
        );
      return [name, parameter(op.name, name, spec, rest.join("="))];
    }),
  );
}

async function runOp(op: AnyOp, input: string, params: readonly string[], out: string): Promise<string> {
  using device = Device.open();
  const known = [...inputTensors(op.op).map(([name]) => name), ...Object.keys(op.op.outputs)];
  const tensors: Record<string, Tensor> = {};
  for (const [given, { dtype, shape, data }] of readSafetensors(input).tensors)
    tensors[tensorName(given, known)] = device.tensor(dtype, shape, data as never);
  const call = opArguments(op.op, tensors, options(op.op, params));
  // Optional outputs are part of what a comparison wants to see.
  for (const [name, spec] of Object.entries(op.op.outputs)) if (spec.optional) call.inputs[name] ??= true;
  const encoder = device.encoder();
  const result = op(encoder, call.inputs, call.options);
  await encoder.commit();
  const outputs =
    result instanceof Tensor
      ? { [Object.keys(op.op.outputs)[0] as string]: result }
      : (result as Record<string, Tensor | undefined>);
  const entries: Parameters<typeof writeSafetensors>[1] = await Promise.all(
    Object.entries(outputs)
      .filter((entry): entry is [string, Tensor] => entry[1] !== undefined)
      .map(
        async ([name, tensor]) =>
          [name, { dtype: tensor.dtype, shape: tensor.shape, data: await tensor.read() }] as const,
      ),
  );
  writeSafetensors(out, entries);
  return [...entries].map(([name, { dtype, shape }]) => `${name} ${dtype} [${shape.join(", ")}]`).join(", ");
}

export function addOp(program: Command): void {
  program
    .command("op")
    .description("run one op on the tensors of a file, or list the ops")
    .argument("[name]")
    .option("--list", "list the ops")
    .option("--json", "with --list: inputs, parameters and outputs of each op as JSON")
    .option("--in <file>", "a .safetensors file with the op's input tensors")
    .option(
      "--param <key=value...>",
      "a parameter of the op; may be given several times",
      (entry: string, all: string[] = []) => [...all, entry],
    )
    .option("--out <file>", "where the outputs go")
    .action(
      async (
        first: string | undefined,
        given: { list?: boolean; json?: boolean; in?: string; param?: string[]; out?: string },
        command: Command,
      ) => {
        const ops = publicOps();
        // An op's name after `--param key=value` is taken for one more parameter.
        const params = (given.param ?? []).filter((entry) => entry.includes("="));
        const [stray, ...more] = (given.param ?? []).filter((entry) => !entry.includes("="));
        const name = first ?? stray;
        const wrong = first === undefined ? more[0] : stray;
        if (wrong !== undefined) return command.error(`error: --param takes key=value, got ${wrong}`, { exitCode: 2 });
        if (given.list || (name === undefined && given.in === undefined && given.out === undefined)) {
          const all = [...ops.values()].map(describe);
          if (given.json) process.stdout.write(`${JSON.stringify(all, null, 2)}\n`);
          else
            for (const { name, package: from, summary } of all)
              process.stdout.write(`${name.padEnd(24)} ${from.padEnd(18)} ${summary}\n`);
          return;
        }
        const found = name === undefined ? undefined : ops.get(name);
        if (name === undefined) return command.error("error: give the name of an op", { exitCode: 2 });
        if (!found)
          throw new MlxtsError("KernelNotFound", `op: no op is called ${name}; \`mlxts op --list\` names them all`, {
            name,
            library: "mlxts",
          });
        if (given.in === undefined || given.out === undefined)
          return command.error("error: give --in and --out", { exitCode: 2 });
        process.stdout.write(`${given.out}: ${await runOp(found.op, given.in, params, given.out)}\n`);
      },
    );
}
