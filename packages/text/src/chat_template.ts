import { parse, type Template, tokenize } from "@huggingface/jinja";
import { MlxtsError, wrongValue } from "@mlxts/common/errors";
import { LimitedInterpreter, TemplateRefusal } from "./template_interpreter.ts";

/** Real templates have up to 30 kB. */
export const MAX_TEMPLATE_BYTES = 1 << 20;
const MAX_TEMPLATES = 64;

const OPTIONS = { lstrip_blocks: true, trim_blocks: true };
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

const fault = (path: string, reason: string, cause?: unknown) =>
  new MlxtsError("ChatTemplate", `${path}: ${inLine(reason)}`, { path, reason }, cause);

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

/** The line at which `tokenize` fails with this message: the first such that the lines up to it fail. */
function lineOfToken(source: string, message: string): number | undefined {
  const lines = source.split("\n");
  const fails = (count: number) => {
    try {
      tokenize(lines.slice(0, count).join("\n"), OPTIONS);
      return false;
    } catch (error) {
      return (error as Error).message === message;
    }
  };
  if (message.startsWith("Unexpected end") || message.startsWith("Missing end")) return undefined;
  let [before, at] = [0, lines.length];
  while (at - before > 1) {
    const middle = (before + at) >> 1;
    if (fails(middle)) at = middle;
    else before = middle;
  }
  return at;
}

/** The line where the statement with the token of this index begins. */
function lineOfStatement(source: string, token: number): number {
  const lines = source.split("\n");
  let line = 1;
  for (let count = 1; count <= lines.length; count++) {
    try {
      if (tokenize(lines.slice(0, count).join("\n"), OPTIONS).length > token) break;
      line = count + 1;
    } catch {
      // The statement goes on in the next line.
    }
  }
  return Math.min(line, lines.length);
}

/** Errors of longer templates name no line: finding it takes time that grows with the square of the length. */
const LONGEST_SEARCHED = 1 << 16;

function parseTemplate(path: string, source: string): Template["parsed"] {
  const searched = source.length <= LONGEST_SEARCHED;
  const at = (line: number | undefined) => (line === undefined ? "" : `line ${line}: `);
  let tokens: ReturnType<typeof tokenize>;
  try {
    tokens = tokenize(source, OPTIONS);
  } catch (error) {
    const { message } = error as Error;
    throw fault(path, `${at(searched ? lineOfToken(source, message) : undefined)}${message}`, error);
  }
  let reached = 0;
  const watched = new Proxy(tokens, {
    get(target, key) {
      if (typeof key === "string" && /^\d+$/.test(key)) reached = Math.max(reached, Number(key));
      return Reflect.get(target, key);
    },
  });
  try {
    return parse(tokens);
  } catch (error) {
    if (error instanceof RangeError) throw error;
    // Parsed again, only to see which token it reaches.
    try {
      parse(watched);
    } catch {}
    const ended = reached >= tokens.length;
    const reason = ended ? "ends where more is expected" : (error as Error).message;
    throw fault(path, `${at(searched ? lineOfStatement(source, reached) : undefined)}${reason}`, error);
  }
}

/** Renders the template `source`, which came from the file `path`. */
export function renderTemplate(
  path: string,
  source: string,
  variables: Record<string, unknown>,
  maxCharacters: number,
): string {
  try {
    const program = parseTemplate(path, source);
    return new LimitedInterpreter(variables, maxCharacters).run(program).value as string;
  } catch (error) {
    if (error instanceof TemplateRefusal)
      throw fault(path, `the template refuses these messages: ${error.message}`, error);
    if (error instanceof RangeError && !("fault" in error))
      throw new MlxtsError(
        "LimitExceeded",
        `${path}: the chat template nests too deeply or makes too long a text`,
        { path },
        error,
      );
    if (error instanceof MlxtsError && error.code === "LimitExceeded")
      throw new MlxtsError("LimitExceeded", `${path}: the chat template ${error.message}`, { path }, error);
    if (error instanceof MlxtsError || (error instanceof Error && "fault" in error)) throw error;
    throw fault(path, error instanceof Error ? error.message : String(error), error);
  }
}
