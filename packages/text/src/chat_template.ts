import { MlxtsError, wrongValue } from "@mlxts/common/errors";
import { Fault } from "./templates/faults.ts";
import { Template } from "./templates/template.ts";

/** Real templates have up to 30 kB. */
export const MAX_TEMPLATE_BYTES = 1 << 20;
const MAX_TEMPLATES = 64;

/** The name of a template that the file gives no name. */
const DEFAULT = "default";

/** The chat templates of a checkpoint by name, and the file that they come from. */
export interface ChatTemplates {
  path: string;
  sources: ReadonlyMap<string, string>;
}

/** The files of a checkpoint that may have chat templates. */
export interface TemplateFiles {
  /** The text of `chat_template.jinja`. */
  "chat_template.jinja"?: string | undefined;
  /** `tokenizer_config.json`, parsed. */
  "tokenizer_config.json"?: object | undefined;
  /** `chat_template.json`, parsed. */
  "chat_template.json"?: object | undefined;
}

const fault = (path: string, reason: string) =>
  new MlxtsError("ChatTemplate", `${path}: ${inLine(reason)}`, { path, reason });

/** A text of the file in a message: on one line, and not too long. */
function inLine(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what must not get into a message
  const plain = text.slice(0, 400).replace(/[\u0000-\u001f\u007f-\u009f]/g, " ");
  return text.length > 400 ? `${plain}…` : plain;
}

/** Reads the field `chat_template`: a text, or a list of `{ name, template }`. */
function templatesIn(path: string, field: unknown): ChatTemplates | undefined {
  if (field === undefined || field === null) return undefined;
  const list: unknown[] = Array.isArray(field) ? field : [{ name: DEFAULT, template: field }];
  const sources = new Map<string, string>();
  if (list.length > MAX_TEMPLATES) throw fault(path, `has more than ${MAX_TEMPLATES} chat templates`);
  for (const entry of list) {
    const { name, template } = (entry ?? {}) as Record<string, unknown>;
    if (typeof name !== "string" || typeof template !== "string")
      throw fault(path, "`chat_template` must be a text, or a list of objects with `name` and `template`");
    if (sources.has(name)) throw fault(path, `has two chat templates with the name \`${name}\``);
    if (template.length > MAX_TEMPLATE_BYTES)
      throw fault(path, `a chat template has more than ${MAX_TEMPLATE_BYTES} characters`);
    sources.set(name, template);
  }
  return sources.size > 0 ? { path, sources } : undefined;
}

/**
 * The chat templates of a checkpoint: `chat_template.jinja`, else those of `tokenizer_config.json`, else of
 * `chat_template.json`. `pathOf` tells where a file lies.
 */
export function chatTemplatesOf(files: TemplateFiles, pathOf: (name: string) => string): ChatTemplates | undefined {
  const separate = files["chat_template.jinja"];
  if (separate !== undefined) return templatesIn(pathOf("chat_template.jinja"), separate);
  const fieldOf = (name: "tokenizer_config.json" | "chat_template.json") =>
    templatesIn(pathOf(name), (files[name] as { chat_template?: unknown } | undefined)?.chat_template);
  return fieldOf("tokenizer_config.json") ?? fieldOf("chat_template.json");
}

/** The template of that name. Without a name: `tool_use` when there are tools, else `default`, or the only one. */
export function chooseTemplate({ path, sources }: ChatTemplates, name: string | undefined, tools: boolean): string {
  const chosen =
    name ?? (tools && sources.has("tool_use") ? "tool_use" : sources.size === 1 ? [...sources.keys()][0] : DEFAULT);
  const source = sources.get(chosen as string);
  if (source === undefined)
    throw wrongValue(
      "tokenizer.chat",
      "template",
      `be one of ${[...sources.keys()].join(", ")}, the templates of ${path}`,
      name ?? "no name, and none is called default",
    );
  return source;
}

/** How much work a template may do and how much text it may make; what its input takes is added. */
export interface TemplateLimits {
  maxTemplateSteps: number;
  maxTemplateCharacters: number;
}

/** A value with more values in it, or with itself in it, is not looked at to its end. */
const MAX_VALUES = 1 << 22;

/** The characters of all texts in a value, and something for each value: the work that it takes at least. */
function sizeOf(value: unknown): number {
  let size = 0;
  const open: unknown[] = [value];
  for (let values = 0; open.length > 0 && values < MAX_VALUES; values++) {
    const next = open.pop();
    size += typeof next === "string" ? next.length + 1 : 8;
    if (next === null || typeof next !== "object") continue;
    for (const [name, item] of next instanceof Map ? next : Object.entries(next)) {
      if (!Array.isArray(next)) size += String(name).length;
      open.push(item);
    }
  }
  return size;
}

/** The faults of a template as typed errors that name its file and, where it is known, the line. */
function typed(path: string, error: unknown): unknown {
  if (error instanceof Fault) {
    const at = error.line === undefined ? "" : `line ${error.line}: `;
    if (error.kind === "limit")
      return new MlxtsError(
        "LimitExceeded",
        `${path}: ${at}the chat template ${inLine(error.message)}`,
        { path, line: error.line, reason: error.message },
        error,
      );
    const reason = error.kind === "raised" ? `the template refuses these messages: ${error.message}` : error.message;
    return new MlxtsError("ChatTemplate", `${path}: ${at}${inLine(reason)}`, { path, line: error.line, reason }, error);
  }
  // The stack of JavaScript, or the longest text that it has.
  if (error instanceof RangeError && !("fault" in error))
    return new MlxtsError(
      "LimitExceeded",
      `${path}: the chat template nests too deeply or makes too long a text`,
      { path },
      error,
    );
  return error;
}

/** Templates that were parsed before, by their text. */
const parsed = new Map<string, Template>();
const MOST_PARSED = 16;

function parsedTemplate(source: string): Template {
  let template = parsed.get(source);
  if (template) return template;
  template = new Template(source);
  if (parsed.size >= MOST_PARSED) parsed.delete(parsed.keys().next().value as string);
  parsed.set(source, template);
  return template;
}

/** Whether the template `source`, which came from the file `path`, has a loop over the parts of a message's content. */
export function takesParts(path: string, source: string): boolean {
  try {
    return parsedTemplate(source).takesParts;
  } catch (error) {
    throw typed(path, error);
  }
}

/** Renders the template `source`, which came from the file `path`. */
export function renderTemplate(
  path: string,
  source: string,
  variables: Record<string, unknown>,
  { maxTemplateSteps, maxTemplateCharacters }: TemplateLimits,
): string {
  try {
    const size = sizeOf(variables);
    return parsedTemplate(source).render(variables, {
      steps: maxTemplateSteps + 64 * size,
      characters: maxTemplateCharacters + 4 * size,
      total: 4 * maxTemplateCharacters + 64 * size,
    });
  } catch (error) {
    throw typed(path, error);
  }
}
