import { inputTensors, type OpDescriptor, opParams, type ParamSpec, paramText, shapeText } from "@mlxts/core";
import type { PublicOp } from "./op_list.ts";

type TensorLike = Pick<OpDescriptor["outputs"][string], "shape" | "doc" | "optional"> & { dtype: unknown };

const tensor = ({ dtype, shape, optional, doc }: TensorLike) => ({
  dtype: typeof dtype === "function" ? "as the options say" : (dtype as string[]),
  shape: shapeText(shape),
  optional: optional ?? false,
  ...(doc && { doc }),
});

/** An op's descriptor as plain data. */
export function describeOp({ op, package: from }: PublicOp) {
  const { name, summary, outputs } = op.op;
  return {
    name,
    package: from,
    summary,
    inputs: Object.fromEntries(inputTensors(op.op).map(([key, spec]) => [key, tensor(spec)])),
    params: Object.fromEntries(opParams(op.op).map(([key, spec]) => [key, spec])),
    outputs: Object.fromEntries(
      Object.entries(outputs).map(([key, spec]) => [
        key,
        { ...tensor(spec), ...(spec.inPlace && { inPlace: spec.inPlace }), ...(spec.needs && { needs: spec.needs }) },
      ]),
    ),
  };
}

/** Lines of a table; each column is as wide as its widest cell. */
export function columns(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, i) => Math.max(...rows.map((row) => (row[i] ?? "").length)));
  return rows.map((row) =>
    row
      .map((cell, i) => cell.padEnd(widths[i] as number))
      .join("  ")
      .trimEnd(),
  );
}

const indented = (lines: readonly string[]) => lines.map((line) => `  ${line}`);

/** Dtypes for people: a rule `=x` means the dtype of `x`. */
const dtypeText = (dtype: string | readonly string[]) =>
  typeof dtype === "string" ? dtype : dtype.map((each) => each.replace(/^=/, "as ")).join(" or ");

/** A value that the parameter takes, for an example. */
function exampleValue(spec: ParamSpec): string {
  if (spec.kind === "choice") return String(spec.values[0]);
  if (spec.kind === "boolean") return "false";
  return String(spec.min ?? (spec.above ?? 0) + 1);
}

/** A command line that runs the op on a file with its inputs. */
export function exampleOf(op: OpDescriptor): string {
  const params = opParams(op)
    .filter(([, spec]) => spec.default === undefined && !spec.optional)
    .map(([name, spec]) => `--param ${name}=${exampleValue(spec)} `);
  return `mlxts op ${op.name} --in case.safetensors ${params.join("")}--out result.safetensors`;
}

/** An op's descriptor as text. */
export function opText(found: PublicOp): string {
  const { name, package: from, summary, inputs, outputs } = describeOp(found);
  const params = opParams(found.op.op);
  const rows = (tensors: typeof inputs | typeof outputs, extra: (key: string) => string[]) =>
    indented(
      columns(
        Object.entries(tensors).map(([key, { dtype, shape, optional, doc }]) => [
          key,
          dtypeText(dtype),
          shape,
          [...(optional ? ["optional"] : []), ...extra(key), ...(doc ? [doc] : [])].join("; "),
        ]),
      ),
    );
  const about = (key: string) => (outputs[key]?.needs ? [`needs ${outputs[key].needs.join(" and ")}`] : []);
  const given = (spec: ParamSpec) =>
    spec.default !== undefined ? `default ${spec.default}` : spec.optional ? "optional" : "required";
  return [
    `${name} (${from}): ${summary}`,
    "",
    "Inputs",
    ...rows(inputs, () => []),
    ...(params.length > 0
      ? [
          "",
          "Parameters (--param name=value)",
          ...indented(columns(params.map(([key, spec]) => [key, paramText(spec), given(spec), spec.doc ?? ""]))),
        ]
      : []),
    "",
    "Outputs",
    ...rows(outputs, about),
    "",
    "Example",
    `  ${exampleOf(found.op.op)}`,
    "",
  ].join("\n");
}
