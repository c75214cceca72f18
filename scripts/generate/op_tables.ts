// The tables of a package's README that say what its ops take: derived from the ops' descriptors.
import {
  type OpDescriptor,
  type OutputSpec,
  type ParamSpec,
  paramText,
  type RecordSpec,
  shapeText,
  type TensorSpec,
} from "@mlxts/core";

/** Text of a table's cell: no character of it forms a table, an emphasis or a tag. */
const cell = (text: string): string => {
  const parts = text.split(/(`[^`]*`)/);
  const escaped = parts.map((part, i) => (i % 2 === 1 ? part : part.replace(/[*_<]/g, (c) => `\\${c}`)));
  return escaped.join("").replaceAll("|", "\\|");
};

const row = (cells: readonly string[]): string => `| ${cells.join(" | ")} |`;
const table = (head: readonly string[], rows: readonly (readonly string[])[]): string[] =>
  rows.length === 0 ? [] : [row(head), row(head.map(() => "---")), ...rows.map(row)];

function dtypeText(dtype: TensorSpec["dtype"] | OutputSpec["dtype"], params: OpDescriptor["params"]): string {
  if (typeof dtype === "function") return "outDtype" in params ? "`outDtype`" : "";
  return dtype.map((rule) => (rule.startsWith("=") ? `that of \`${rule.slice(1)}\`` : rule)).join(", ");
}

const list = (names: readonly string[], last: string): string => {
  const quoted = names.map((name) => `\`${name}\``);
  return quoted.length < 2 ? quoted.join() : `${quoted.slice(0, -1).join(", ")} ${last} ${quoted.at(-1)}`;
};

function tensorRow(
  name: string,
  spec: TensorSpec | OutputSpec,
  params: OpDescriptor["params"],
  notes: string[],
): string[] {
  const about = [...(spec.doc ? [spec.doc] : []), ...notes].join("; ");
  return [name, shapeText(spec.shape), dtypeText(spec.dtype, params), about].map(cell);
}

const inputNotes = ({ optional }: { optional?: boolean }): string[] => (optional ? ["optional"] : []);

function recordRow(name: string, spec: RecordSpec, params: OpDescriptor["params"]): string[] {
  const { tensor, type, doc } = spec;
  const [shape, dtypes] = tensor ? [shapeText(tensor.shape), `${dtypeText(tensor.dtype, params)}, `] : ["", ""];
  return [`\`${name}\``, shape, `${dtypes}\`${type}\``, [...(doc ? [doc] : []), ...inputNotes(spec)].join("; ")].map(
    cell,
  );
}

/** The tensors and attributes of a value that several ops take as one input. */
export function recordTable(spec: RecordSpec): string {
  const tensors = Object.entries(spec.tensors).map(([name, tensor]) =>
    tensorRow(`\`${name}\``, tensor, {}, inputNotes(tensor)),
  );
  const attributes = Object.entries(spec.attributes).map(([name, param]) => [
    cell(`\`${name}\``),
    "",
    cell(valuesText(param)),
    cell(param.doc ?? ""),
  ]);
  return table(["part", "shape", "dtype or values", ""], [...tensors, ...attributes]).join("\n");
}

const valuesText = (spec: ParamSpec): string => paramText(spec).replace(/^one of /, "");

function outputNotes({ optional, inPlace, needs }: OutputSpec): string[] {
  return [
    ...(optional ? [`written when asked for${needs ? `, with ${list(needs, "and")}` : ""}`] : []),
    ...(inPlace ? [`may be exactly ${list(inPlace, "or")}`] : []),
  ];
}

/** A small number as 1e-6. */
const valueText = (value: number | string | boolean): string =>
  typeof value === "number" && value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential() : String(value);

/** What an op takes and gives: a table of its tensors, and one of its options if it has any. */
export function opTables({ inputs, outputs, params }: OpDescriptor): string {
  const tensors = [
    ...Object.entries(inputs).flatMap(([name, spec]) =>
      "tensors" in spec ? [recordRow(name, spec, params)] : [tensorRow(`\`${name}\``, spec, params, inputNotes(spec))],
    ),
    ...Object.entries(outputs).map(([name, spec]) =>
      tensorRow(`\`${name}\` (output)`, spec, params, outputNotes(spec)),
    ),
  ];
  const options = Object.entries(params).map(([name, spec]) =>
    [
      `\`${name}\``,
      valuesText(spec),
      spec.default !== undefined ? valueText(spec.default) : spec.optional ? "–" : "required",
      spec.doc ?? "",
    ].map(cell),
  );
  return [
    ...table(["tensor", "shape", "dtype", ""], tensors),
    ...(options.length > 0 ? ["", ...table(["option", "values", "default", ""], options)] : []),
  ].join("\n");
}

/** All ops of a package, each with a link to its section. */
export function opsTable(ops: readonly OpDescriptor[]): string {
  const rows = ops.map(({ name, summary }) => [`[\`${name}\`](#${name.toLowerCase()})`, cell(summary)]);
  return table(["op", "what it computes"], rows).join("\n");
}

const between = (begin: string, end: string) =>
  new RegExp(`(${begin.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}\n).*?(${end})`, "s");

/** Puts a section before the one about Metal, or at the end. */
function withSection(readme: string, section: string): string {
  const at = readme.indexOf("\n## Metal\n");
  return at < 0 ? `${readme.trimEnd()}\n\n${section}` : `${readme.slice(0, at + 1)}${section}\n${readme.slice(at + 1)}`;
}

/**
 * A package's README with its tables made anew: between `<!-- ops -->` and `<!-- /ops -->`, and for each op between
 * `<!-- op NAME -->` and `<!-- /op -->`; the parts of a record between `<!-- record TYPE -->` and `<!-- /record -->`. An op that the README does not have yet gets a section.
 */
export function withTables(readme: string, ops: readonly OpDescriptor[]): string {
  let text = readme.replace(
    between("<!-- ops -->", "<!-- /ops -->"),
    (_, begin, end) => `${begin}${opsTable(ops)}\n${end}`,
  );
  for (const spec of ops.flatMap(({ inputs }) => Object.values(inputs)))
    if ("tensors" in spec)
      text = text.replace(
        between(`<!-- record ${spec.type} -->`, "<!-- /record -->"),
        (_, head, end) => `${head}${recordTable(spec)}\n${end}`,
      );
  for (const op of ops) {
    const begin = `<!-- op ${op.name} -->`;
    if (!text.includes(begin)) text = withSection(text, `## ${op.name}\n\n${begin}\n<!-- /op -->\n`);
    text = text.replace(between(begin, "<!-- /op -->"), (_, head, end) => `${head}${opTables(op)}\n${end}`);
  }
  return text;
}
