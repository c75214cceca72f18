import { wrongKind } from "@mlxts/common/errors";
import { parseJson } from "./json_text.ts";

type Schema = Record<string, unknown>;
const isObject = (value: unknown): value is Schema =>
  value !== null && typeof value === "object" && !Array.isArray(value);

/** A tool that a model may call: as in OpenAI's API, or its `function` alone. */
export interface Tool {
  type?: string;
  function?: { name: string; description?: string; parameters?: object; [field: string]: unknown };
  name?: string;
  description?: string;
  parameters?: object;
  [field: string]: unknown;
}

/** The tools of a conversation by name, with the schemas of their parameters. */
export type ToolSchemas = ReadonlyMap<string, Schema>;

/** @throws ArgumentTypeError for tools without a name */
export function toolSchemas(op: string, tools: readonly Tool[]): ToolSchemas {
  if (!Array.isArray(tools)) throw wrongKind(op, "tools", "be an array of tools", tools);
  return new Map(
    tools.map((tool: Tool | null | undefined) => {
      const inner = isObject(tool?.function) ? tool.function : tool;
      if (typeof inner?.name !== "string") throw wrongKind(op, "tools", "have names", tool);
      return [inner.name, isObject(inner.parameters) ? inner.parameters : {}];
    }),
  );
}

/** The JSON types that a schema names, or undefined if it leaves them open. */
function typesOf(schema: unknown): Set<string> | undefined {
  if (!isObject(schema)) return undefined;
  const { type, anyOf, oneOf } = schema;
  if (typeof type === "string") return new Set([type]);
  if (Array.isArray(type)) return new Set(type.map(String));
  if (Array.isArray(schema.enum)) return new Set(schema.enum.map(jsonType));
  const choices = Array.isArray(anyOf) ? anyOf : Array.isArray(oneOf) ? oneOf : undefined;
  if (choices === undefined || choices.length > 64) return undefined;
  const types = new Set<string>();
  for (const choice of choices) {
    const { type: inner } = isObject(choice) ? choice : {};
    if (typeof inner !== "string") return undefined;
    types.add(inner);
  }
  return types;
}

function jsonType(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "array";
  return typeof value;
}

const PYTHON_WORDS: Readonly<Record<string, [type: string, json: string]>> = {
  True: ["boolean", "true"],
  False: ["boolean", "false"],
  None: ["null", "null"],
};

/**
 * A value that a model wrote without quotes, as JSON: a string if the schema says so, else JSON, else a string. Python's
 * `True`, `False`, `None` count as JSON where the schema names their types.
 */
export function valueAsJson(schema: Schema, key: string, text: string): string {
  const { properties } = schema;
  const types = isObject(properties) && Object.hasOwn(properties, key) ? typesOf(properties[key]) : undefined;
  const asString = () => JSON.stringify(text);
  if (types?.has("string") && types.size === 1) return asString();
  const python = Object.hasOwn(PYTHON_WORDS, text) ? PYTHON_WORDS[text] : undefined;
  if (python && types?.has(python[0])) return python[1];
  const parsed = parseJson(text);
  if (parsed === undefined) return asString();
  const type = jsonType(parsed.value);
  if (types?.has("string") && !(types.has(type) || (type === "number" && types.has("integer")))) return asString();
  return text.trim();
}
