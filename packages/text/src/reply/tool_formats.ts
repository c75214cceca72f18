import { isJsonObject, JsonObjectReader, jsonMembers } from "./json_text.ts";
import { type ToolSchemas, valueAsJson } from "./tools.ts";

/** How a model writes tool calls: that of Qwen3-Next, of Qwen3.5 and Qwen3-Coder, of DeepSeek-V3 and R1, of V3.1. */
export type ToolFormat = "hermes" | "qwen_xml" | "deepseek_v3" | "deepseek_v31";

/** A well-formed call of a tool that was given; `arguments` is a JSON object. */
export interface Call {
  name: string;
  arguments: string;
}

/** Takes the units of a call one by one with `yield`. Returns undefined as soon as the text is no call. */
export type CallReader = Generator<undefined, Call | undefined, string>;
type Reader<T> = Generator<undefined, T, string>;

interface Format {
  /** What a call begins with; `section`, what a list of calls begins and ends with. */
  begin: string;
  section?: readonly [string, string];
  /** Reads a call after `begin`. */
  read(tools: ToolSchemas): CallReader;
}

const isSpace = (unit: string) => unit === "\n" || unit === " " || unit === "\t" || unit === "\r";
const MAX_NAME = 256;

/** Reads `text`; `first`: a unit that was read already. */
function* literal(text: string, first?: string): Reader<boolean> {
  let at = 0;
  if (first !== undefined && first !== text[at++]) return false;
  while (at < text.length) {
    // tsup's compiler for CommonJS does not read a parenthesized `yield`.
    const unit = yield;
    if (unit !== text[at++]) return false;
  }
  return true;
}

/** The first unit that is no white space. */
function* afterSpace(): Reader<string> {
  for (;;) {
    const unit = yield;
    if (!isSpace(unit)) return unit;
  }
}

/** A name of one word, up to `end`. */
function* word(end: string, first = ""): Reader<string | undefined> {
  let text = first;
  while (!text.endsWith(end)) {
    const unit = yield;
    if (isSpace(unit) && !end.includes(unit)) return undefined;
    text += unit;
    if (text.length > MAX_NAME) return undefined;
  }
  const name = text.slice(0, -end.length);
  return name === "" ? undefined : name;
}

/** An object of JSON that begins with the unit `first`. */
function* jsonObject(first: string): Reader<string | undefined> {
  const reader = new JsonObjectReader();
  const units = [first];
  for (let state = reader.push(first); state !== "done"; ) {
    if (state === "wrong") return undefined;
    const unit = yield;
    units.push(unit);
    state = reader.push(unit);
  }
  const text = units.join("");
  return isJsonObject(text) ? text : undefined;
}

/** `{"name": …, "arguments": {…}}` between tags; arguments that are JSON in a string are taken out of it. */
function* readHermes(tools: ToolSchemas): CallReader {
  const json = yield* jsonObject(yield* afterSpace());
  if (json === undefined || !(yield* literal("</tool_call>", yield* afterSpace()))) return undefined;
  const members = jsonMembers(json);
  const name: unknown = JSON.parse(members?.get("name") ?? "null");
  let text = members?.get("arguments") ?? "";
  if (text.startsWith('"')) text = JSON.parse(text) as string;
  return typeof name === "string" && tools.has(name) && isJsonObject(text) ? { name, arguments: text } : undefined;
}

/**
 * A value and its closing tag, and the tag after it: `<parameter=` or `</function>`. A closing tag that is not followed by
 * one of these is part of the value.
 */
function* parameterValue(): Reader<{ text: string; last: boolean }> {
  const close = "</parameter>";
  const next = ["<parameter=", "</function>"];
  const units: string[] = [];
  /** Since when a closing tag, and after it a following tag, may have been read. */
  let tail = "";
  for (;;) {
    const unit = yield;
    tail += unit;
    for (;;) {
      if (tail.length <= close.length) {
        if (close.startsWith(tail)) break;
      } else {
        const after = tail.slice(close.length).replace(/^[\n\r\t ]+/, "");
        if (after === next[0] || after === next[1]) return { text: units.join(""), last: after === next[1] };
        if (next.some((tag) => tag.startsWith(after)) && tail.length < 256) break;
      }
      // The first unit is the value's; the rest may be a tag still.
      const again = tail.indexOf("<", 1);
      units.push(again < 0 ? tail : tail.slice(0, again));
      tail = again < 0 ? "" : tail.slice(again);
      if (tail === "") break;
    }
  }
}

/** `<function=N>`, then `<parameter=K>` with values as plain text. A value is without one line feed on each side. */
function* readQwenXml(tools: ToolSchemas): CallReader {
  if (!(yield* literal("<function=", yield* afterSpace()))) return undefined;
  const name = yield* word(">");
  const schema = name === undefined ? undefined : tools.get(name);
  if (name === undefined || schema === undefined) return undefined;
  const values = new Map<string, string>();
  if ((yield* afterSpace()) !== "<") return undefined;
  const kind = yield;
  if (!(yield* literal(kind === "/" ? "/function>" : "parameter=", kind))) return undefined;
  for (let last = kind === "/"; !last; ) {
    const key = yield* word(">");
    if (key === undefined || values.has(key)) return undefined;
    const value = yield* parameterValue();
    values.set(key, valueAsJson(schema, key, value.text.replace(/^\r?\n/, "").replace(/\r?\n$/, "")));
    last = value.last;
  }
  if (!(yield* literal("</tool_call>", yield* afterSpace()))) return undefined;
  const members = [...values].map(([key, value]) => `${JSON.stringify(key)}: ${value}`);
  return { name, arguments: `{${members.join(", ")}}` };
}

const SEPARATOR = "<｜tool▁sep｜>";
const CALL_BEGIN = "<｜tool▁call▁begin｜>";
const CALL_END = "<｜tool▁call▁end｜>";
const SECTION = ["<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"] as const;

function* readDeepSeekV3(tools: ToolSchemas): CallReader {
  if ((yield* word(SEPARATOR, yield* afterSpace())) !== "function") return undefined;
  const name = yield* word("\n");
  if (name === undefined || !tools.has(name) || !(yield* literal("```json", yield* afterSpace()))) return undefined;
  const text = yield* jsonObject(yield* afterSpace());
  if (text === undefined || !(yield* literal("```", yield* afterSpace()))) return undefined;
  return (yield* literal(CALL_END, yield* afterSpace())) ? { name, arguments: text } : undefined;
}

function* readDeepSeekV31(tools: ToolSchemas): CallReader {
  const name = yield* word(SEPARATOR, yield* afterSpace());
  if (name === undefined || !tools.has(name)) return undefined;
  const text = yield* jsonObject(yield* afterSpace());
  if (text === undefined) return undefined;
  return (yield* literal(CALL_END, yield* afterSpace())) ? { name, arguments: text } : undefined;
}

export const FORMATS: Readonly<Record<ToolFormat, Format>> = {
  hermes: { begin: "<tool_call>", read: readHermes },
  qwen_xml: { begin: "<tool_call>", read: readQwenXml },
  deepseek_v3: { begin: CALL_BEGIN, section: SECTION, read: readDeepSeekV3 },
  deepseek_v31: { begin: CALL_BEGIN, section: SECTION, read: readDeepSeekV31 },
};

/** The format that a chat template tells a model to write tool calls in, if it is one that is known. */
export function toolFormatOf(template: string): ToolFormat | undefined {
  if (template.includes(SEPARATOR)) return template.includes("```json") ? "deepseek_v3" : "deepseek_v31";
  if (!template.includes("<tool_call>")) return undefined;
  return template.includes("<function=") && template.includes("<parameter=") ? "qwen_xml" : "hermes";
}
