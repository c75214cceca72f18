import { Tokenizer as HuggingFaceTokenizer } from "@huggingface/tokenizers";
import { MlxtsError, printAsJson, wrongKind, wrongValue } from "@mlxts/common/errors";
import { checkOptionNames } from "@mlxts/common/options";
import {
  type ChatTemplates,
  chatTemplatesOf,
  chooseTemplate,
  renderTemplate,
  type TemplateFiles,
  type TemplateLimits,
} from "./chat_template.ts";
import { checkTokenizerJson, type TokenizerShape } from "./tokenizer_json.ts";

export interface ChatMessage {
  role: string;
  content: string;
  [key: string]: unknown;
}

/** Limits on the time and memory that a checkpoint's files may take. Raise them for files that you trust. */
export interface TokenizerOptions {
  /**
   * Milliseconds that one call may take: `encode`, `decode` or the constructor. Default 5000. `encode` has 100 ms
   * more for every 1000 characters of its text.
   */
  timeLimitMs?: number;
  /**
   * The most characters of one value of a chat template; all its values together may have four times as many. Default
   * 2²³. To these limits 4 and 64 times the length of the messages and variables are added.
   */
  maxTemplateCharacters?: number;
  /**
   * The most steps of a chat template: nodes that it evaluates, and items and characters that its filters look at. Default
   * 2²⁴, about a second; 64 times the length of the messages and variables are added.
   */
  maxTemplateSteps?: number;
}

export interface ChatOptions {
  /** Which of several templates, by name. Default: `tool_use` if there are `tools` among the variables, else `default`. */
  template?: string;
}

/** The files of a checkpoint that a tokenizer is made of, by their names: parsed JSON, and texts. */
export interface TokenizerFiles extends TemplateFiles {
  "tokenizer.json": object;
}

/** The most characters that the tokenizer library takes in one call. */
const MAX_CHARACTERS = 2 ** 24;
/** The most nodes of its search for the tokens of a unigram vocabulary. */
const MAX_UNIGRAM_NODES = 2 ** 23;
/** Up to so many characters, well-known tokenizers take less time than the limit of time itself. */
const SHORT_TEXT = 10_000;

/**
 * The tokenizer of a checkpoint (`tokenizer.json`) and its chat templates. The files are not trusted: their regular
 * expressions and templates run with limits on time and memory.
 */
export class Tokenizer {
  private readonly tokenizer: HuggingFaceTokenizer;
  private readonly path: string;
  private readonly shape: TokenizerShape;
  /** Whether the vocabulary has a token for unknown text. */
  private readonly hasUnknownToken: boolean;
  private readonly templates: ChatTemplates | undefined;
  private readonly specialTokens: Readonly<Record<string, string>>;
  private readonly timeLimitMs: number;
  private readonly templateLimits: TemplateLimits;

  /**
   * Makes a tokenizer of files that were read before; `directory`, where they lie, is named in errors. The class of this
   * name in `@mlxts/text/node` reads the files of a directory itself.
   * @throws MlxtsError `Io` for files that are malformed or give token ids that are negative, fractional, huge or taken
   *   twice; `ChatTemplate` for a field `chat_template` that is no template; `LimitExceeded`
   */
  constructor(files: TokenizerFiles, options: TokenizerOptions = {}, directory = "") {
    const op = "Tokenizer";
    checkOptionNames<TokenizerOptions>(op, options, {
      timeLimitMs: true,
      maxTemplateCharacters: true,
      maxTemplateSteps: true,
    });
    const { timeLimitMs = 5000, maxTemplateCharacters = 2 ** 23, maxTemplateSteps = 2 ** 24 } = options;
    for (const [name, value] of Object.entries({ timeLimitMs, maxTemplateCharacters, maxTemplateSteps })) {
      if (typeof value !== "number") throw wrongKind(op, name, "be a number", value);
      if (!(value >= 1 && value <= 0x7fffffff)) throw wrongValue(op, name, "be from 1 to 2147483647", value);
    }
    const json = files?.["tokenizer.json"];
    if (json === null || typeof json !== "object") throw wrongKind(op, "files", "have `tokenizer.json`, parsed", json);
    this.timeLimitMs = timeLimitMs;
    this.templateLimits = { maxTemplateCharacters, maxTemplateSteps };
    const pathOf = (name: string) => (directory === "" ? name : `${directory.replace(/\/+$/, "")}/${name}`);
    this.path = pathOf("tokenizer.json");
    const config = (files["tokenizer_config.json"] ?? {}) as Record<string, unknown>;
    [this.shape, this.tokenizer] = this.limited(this.path, "opening it", timeLimitMs, () => [
      checkTokenizerJson(this.path, json as Record<string, unknown>),
      new HuggingFaceTokenizer({ added_tokens: [], ...json } as object, { ...config }),
    ]);
    this.hasUnknownToken = typeof this.tokenizer.model?.unk_token === "string";
    this.templates = chatTemplatesOf(files, pathOf);
    this.specialTokens = specialTokensOf(config);
  }

  /** Calls `run` and throws what `tooLong` makes after `limitMs`, where the platform can interrupt it: in Node.js. */
  protected withinTime<T>(_limitMs: number, _tooLong: () => Error, run: () => T): T {
    return run();
  }

  /** Calls `run`, whose work the file `path` decides, for at most `limitMs`; failures become typed errors. */
  private limited<T>(path: string, what: string, limitMs: number, run: () => T): T {
    const fail = (code: "Io" | "LimitExceeded", reason: string, cause?: unknown) =>
      new MlxtsError(code, `${path}: ${what}: ${reason}`, { path, reason }, cause);
    try {
      if (limitMs === Number.POSITIVE_INFINITY) return run();
      const tooLong = () => fail("LimitExceeded", `takes longer than ${Math.ceil(limitMs)} ms (timeLimitMs)`);
      return this.withinTime(limitMs, tooLong, run);
    } catch (error) {
      if (error instanceof MlxtsError || (error instanceof Error && "fault" in error)) throw error;
      const { message } = error as Error;
      throw fail(error instanceof RangeError ? "LimitExceeded" : "Io", message, error);
    }
  }

  private checkMemory(what: string, needed: number, most: number): void {
    if (needed <= most) return;
    const reason = `${what} would take too much memory with this tokenizer: give it in parts`;
    throw new MlxtsError("LimitExceeded", `${this.path}: ${reason}`, { path: this.path, reason });
  }

  /**
   * The token ids of a text.
   * @throws MlxtsError `LimitExceeded` when the file's regular expressions take too long or its steps make the text too
   *   long, `Io` when the vocabulary has no token for a character and none for unknown text
   */
  encode(text: string): number[] {
    if (typeof text !== "string") throw wrongKind("tokenizer.encode", "text", "be a string", text);
    const { growth, overlap, encodesShortTextsSoon } = this.shape;
    const what = `encoding ${text.length} characters`;
    if (growth > 1) this.checkMemory(what, text.length * growth, MAX_CHARACTERS);
    this.checkMemory(what, text.length * growth * overlap, MAX_UNIGRAM_NODES);
    const isSoonDone = encodesShortTextsSoon && text.length * growth <= SHORT_TEXT;
    const limitMs = isSoonDone ? Number.POSITIVE_INFINITY : this.timeLimitMs + text.length / 10;
    const { ids } = this.limited(this.path, what, limitMs, () => this.tokenizer.encode(text));
    for (const id of ids)
      if (!Number.isInteger(id))
        throw new MlxtsError("Io", `${this.path}: the vocabulary has no token for a part of the text`, {
          path: this.path,
        });
    return ids;
  }

  /** The text of token ids, without special tokens. Unknown ids become the token for unknown text, or nothing. */
  decode(ids: readonly number[]): string {
    if (!Array.isArray(ids)) throw wrongKind("tokenizer.decode", "ids", "be an array of token ids", ids);
    for (let at = 0; at < ids.length; at++)
      if (!Number.isInteger(ids[at]) || (ids[at] as number) < 0)
        throw wrongValue("tokenizer.decode", "ids", "be integers ≥ 0", `${String(ids[at])} at position ${at}`);
    const known = this.hasUnknownToken ? [...ids] : ids.filter((id) => this.tokenizer.id_to_token(id) !== undefined);
    if (known.length === 0) return "";
    const { longestToken, decodedGrowth, decodesByRegex } = this.shape;
    const what = `decoding ${ids.length} tokens`;
    if (ids.length * longestToken * decodedGrowth > MAX_CHARACTERS) {
      const tokens = ids.reduce((sum, id) => sum + (this.tokenizer.id_to_token(id)?.length ?? 0), 0);
      this.checkMemory(what, tokens * decodedGrowth, 4 * MAX_CHARACTERS);
    }
    // Without regular expressions the time is in proportion to the tokens: the limit, which takes 60 µs, is left out.
    const limitMs = decodesByRegex ? this.timeLimitMs + ids.length / 10 : Number.POSITIVE_INFINITY;
    return this.limited(this.path, what, limitMs, () =>
      this.tokenizer.decode(known, { skip_special_tokens: true, clean_up_tokenization_spaces: false }),
    );
  }

  get hasChatTemplate(): boolean {
    return this.templates !== undefined;
  }

  /** Names of the chat templates; a template without a name is called `default`. */
  get chatTemplates(): readonly string[] {
    return [...(this.templates?.sources.keys() ?? [])];
  }

  /**
   * The prompt text of a conversation, which ends where the assistant's answer begins. `variables` are passed to the
   * template, for example `tools` or `enable_thinking`.
   * @throws MlxtsError `ChatTemplate` for a broken template, with the file and, where it can be known, the line, and for
   *   messages that a template refuses, with its words; `LimitExceeded` for a template that takes too long or makes too
   *   much text
   */
  chat(messages: readonly ChatMessage[], variables: Record<string, unknown> = {}, options: ChatOptions = {}): string {
    const op = "tokenizer.chat";
    if (!Array.isArray(messages) || !messages.every((message) => message !== null && typeof message === "object"))
      throw wrongKind(op, "messages", "be an array of messages", messages);
    if (variables === null || typeof variables !== "object")
      throw wrongKind(op, "variables", "be an object", variables);
    checkOptionNames<ChatOptions>(op, options, { template: true });
    const { templates } = this;
    if (templates === undefined)
      throw wrongValue(op, "messages", "have a chat template", "a checkpoint without one", "pass a plain prompt");
    const source = chooseTemplate(templates, options.template, Array.isArray(variables.tools));
    const values = {
      ...this.specialTokens,
      tools: null,
      documents: null,
      add_generation_prompt: true,
      ...variables,
      messages,
    };
    return renderTemplate(templates.path, source, values, this.templateLimits);
  }

  /** What `JSON.stringify` and `console.log` show. */
  toJSON(): object {
    const { path, chatTemplates } = this;
    return { type: "Tokenizer", path, chatTemplates };
  }
}

printAsJson(Tokenizer);

/** Variables of templates such as `bos_token`. In the file they are texts, or objects with the text as `content`. */
function specialTokensOf(config: Record<string, unknown>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(config).flatMap(([name, value]) => {
      if (!name.endsWith("_token")) return [];
      const text = typeof value === "string" ? value : (value as { content?: unknown } | null)?.content;
      return typeof text === "string" ? [[name, text]] : [];
    }),
  );
}
