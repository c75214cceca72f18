import { join } from "node:path";
import { Tokenizer as HuggingFaceTokenizer } from "@huggingface/tokenizers";
import { checkOptionNames, MlxtsError, printAsJson, wrongKind, wrongValue } from "@mlxts/core";
import { type ChatTemplates, chooseTemplate, readChatTemplates, renderTemplate } from "./chat_template.ts";
import { checkDirectory } from "./directory.ts";
import { readJson, readOptionalJson } from "./json.ts";
import { withinTime } from "./time_limit.ts";
import { checkTokenizerJson, type TokenizerShape } from "./tokenizer_json.ts";

export interface ChatMessage {
  role: string;
  content: string;
  [key: string]: unknown;
}

/** Limits of what a checkpoint's files may take; whoever trusts the files can raise them. */
export interface TokenizerOptions {
  /**
   * Milliseconds that one call may take: `encode`, `decode`, `chat` or opening. Default 5000. `encode` has 100 ms more for
   * every 1000 characters of its text.
   */
  timeLimitMs?: number;
  /**
   * Characters that a chat template may make of nothing: in one value; in all its values together four times as many.
   * Default 2²³, 8 MiB. What it is given, and what it makes of that, comes on top: 4 and 64 times its length.
   */
  maxTemplateCharacters?: number;
}

export interface ChatOptions {
  /** Which of several templates, by name. Default: `tool_use` if there are `tools` among the variables, else `default`. */
  template?: string;
}

/** Characters or nodes of the tokenizer library that fit well into memory. */
const MOST_AT_ONCE = 2 ** 24;
const MOST_UNIGRAM_NODES = 2 ** 23;
/** Texts of well-known tokenizers need no limit of time up to so many characters: it takes longer than they do. */
const SHORT_TEXT = 10_000;

/**
 * A checkpoint's `tokenizer.json`, and its chat templates if it has some. The files are not trusted: their regular
 * expressions and templates run with limits of time and memory.
 */
export class Tokenizer {
  private readonly tokenizer: HuggingFaceTokenizer;
  private readonly path: string;
  private readonly shape: TokenizerShape;
  /** There is a token for ids that the vocabulary lacks. */
  private readonly hasUnknownToken: boolean;
  private readonly templates: ChatTemplates | undefined;
  private readonly specialTokens: Readonly<Record<string, string>>;
  private readonly timeLimitMs: number;
  private readonly maxTemplateCharacters: number;

  /**
   * Opens the tokenizer of a checkpoint's directory: `tokenizer.json`, and chat templates where there are some.
   * @throws MlxtsError `Io` for files that are missing, malformed or give token ids that are negative, fractional, huge
   *   or taken twice; `ChatTemplate` for a field `chat_template` that is no template; `LimitExceeded`
   */
  constructor(directory: string, options: TokenizerOptions = {}) {
    const op = "Tokenizer";
    checkDirectory(op, directory, "tokenizer.json");
    checkOptionNames<TokenizerOptions>(op, options, { timeLimitMs: 0, maxTemplateCharacters: 0 });
    const { timeLimitMs = 5000, maxTemplateCharacters = 2 ** 23 } = options;
    for (const [name, value] of Object.entries({ timeLimitMs, maxTemplateCharacters })) {
      if (typeof value !== "number") throw wrongKind(op, name, "be a number", value);
      if (!(value >= 1 && value <= 0x7fffffff)) throw wrongValue(op, name, "be from 1 to 2147483647", value);
    }
    this.timeLimitMs = timeLimitMs;
    this.maxTemplateCharacters = maxTemplateCharacters;
    this.path = join(directory, "tokenizer.json");
    const json = readJson(this.path);
    const config = readOptionalJson(directory, "tokenizer_config.json") ?? {};
    [this.shape, this.tokenizer] = this.limited(this.path, "opening it", timeLimitMs, () => [
      checkTokenizerJson(this.path, json),
      new HuggingFaceTokenizer({ added_tokens: [], ...json } as object, { ...config }),
    ]);
    this.hasUnknownToken = typeof this.tokenizer.model?.unk_token === "string";
    this.templates = readChatTemplates(directory, config);
    this.specialTokens = specialTokensOf(config);
  }

  /** Runs what the file `path` decides about, for at most `limitMs`; its failures become typed errors. */
  private limited<T>(path: string, what: string, limitMs: number, run: () => T): T {
    const fail = (code: "Io" | "LimitExceeded", reason: string, cause?: unknown) =>
      new MlxtsError(code, `${path}: ${what}: ${reason}`, { path, reason }, cause);
    try {
      if (limitMs === Number.POSITIVE_INFINITY) return run();
      const tooLong = () => fail("LimitExceeded", `takes longer than ${Math.ceil(limitMs)} ms (timeLimitMs)`);
      return withinTime(limitMs, tooLong, run);
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
   * @throws MlxtsError `LimitExceeded` when the file's regular expressions take too long or its rules make too much of
   *   the text, `Io` when the vocabulary lacks a character and a token for that
   */
  encode(text: string): number[] {
    if (typeof text !== "string") throw wrongKind("tokenizer.encode", "text", "be a string", text);
    const { growth, overlap, encodesShortTextsSoon } = this.shape;
    const what = `encoding ${text.length} characters`;
    if (growth > 1) this.checkMemory(what, text.length * growth, MOST_AT_ONCE);
    this.checkMemory(what, text.length * growth * overlap, MOST_UNIGRAM_NODES);
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

  /** The text of token ids, without special tokens. Ids that the vocabulary lacks have none, or that of its unknown token. */
  decode(ids: readonly number[]): string {
    if (!Array.isArray(ids)) throw wrongKind("tokenizer.decode", "ids", "be an array of token ids", ids);
    for (let at = 0; at < ids.length; at++)
      if (!Number.isInteger(ids[at]) || (ids[at] as number) < 0)
        throw wrongValue("tokenizer.decode", "ids", "be integers ≥ 0", `${String(ids[at])} at position ${at}`);
    const known = this.hasUnknownToken ? [...ids] : ids.filter((id) => this.tokenizer.id_to_token(id) !== undefined);
    if (known.length === 0) return "";
    const { longestToken, decodedGrowth, decodesByRegex } = this.shape;
    const what = `decoding ${ids.length} tokens`;
    if (ids.length * longestToken * decodedGrowth > MOST_AT_ONCE) {
      const tokens = ids.reduce((sum, id) => sum + (this.tokenizer.id_to_token(id)?.length ?? 0), 0);
      this.checkMemory(what, tokens * decodedGrowth, 4 * MOST_AT_ONCE);
    }
    // Without regular expressions the time is that of the tokens: the limit, which takes 60 µs, is saved.
    const limitMs = decodesByRegex ? this.timeLimitMs + ids.length / 10 : Number.POSITIVE_INFINITY;
    return this.limited(this.path, what, limitMs, () =>
      this.tokenizer.decode(known, { skip_special_tokens: true, clean_up_tokenization_spaces: false }),
    );
  }

  get hasChatTemplate(): boolean {
    return this.templates !== undefined;
  }

  /** Names of the chat templates; one without a name is called `default`. */
  get chatTemplates(): readonly string[] {
    return [...(this.templates?.sources.keys() ?? [])];
  }

  /**
   * The prompt text of a conversation, ending where the assistant's answer begins. `variables` are for the template, for
   * example `tools` or `enable_thinking`.
   * @throws MlxtsError `ChatTemplate` that names the file and, where it can be known, the line of a broken template, or
   *   gives the words with which a template refuses the messages; `LimitExceeded` for one that takes too long or makes
   *   too much
   */
  chat(messages: readonly ChatMessage[], variables: Record<string, unknown> = {}, options: ChatOptions = {}): string {
    const op = "tokenizer.chat";
    if (!Array.isArray(messages) || !messages.every((message) => message !== null && typeof message === "object"))
      throw wrongKind(op, "messages", "be an array of messages", messages);
    if (variables === null || typeof variables !== "object")
      throw wrongKind(op, "variables", "be an object", variables);
    checkOptionNames<ChatOptions>(op, options, { template: 0 });
    const { templates } = this;
    if (templates === undefined)
      throw wrongValue(op, "messages", "have a chat template", "a checkpoint without one", "pass a plain prompt");
    const source = chooseTemplate(templates, options.template, Array.isArray(variables.tools));
    const values = { ...this.specialTokens, add_generation_prompt: true, ...variables, messages };
    return this.limited(templates.path, "the chat template", this.timeLimitMs, () =>
      renderTemplate(templates.path, source, values, this.maxTemplateCharacters),
    );
  }

  /** What `JSON.stringify` and `console.log` show. */
  toJSON(): object {
    const { path, chatTemplates } = this;
    return { type: "Tokenizer", path, chatTemplates };
  }
}

printAsJson(Tokenizer);

/** Variables of a template like `bos_token`: texts, or objects that have them as `content`. */
function specialTokensOf(config: Record<string, unknown>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(config).flatMap(([name, value]) => {
      if (!name.endsWith("_token")) return [];
      const text = typeof value === "string" ? value : (value as { content?: unknown } | null)?.content;
      return typeof text === "string" ? [[name, text]] : [];
    }),
  );
}

/** Text as ids arrive: characters are held back until all their bytes are there. */
export class TextStream {
  private readonly tokenizer: Tokenizer;
  private ids: number[] = [];
  private emitted = "";

  constructor(tokenizer: Tokenizer) {
    if (typeof (tokenizer as Partial<Tokenizer> | null | undefined)?.decode !== "function")
      throw wrongKind("TextStream", "tokenizer", "be a Tokenizer", tokenizer);
    this.tokenizer = tokenizer;
  }

  /** The new text that `id` completes. */
  push(id: number): string {
    if (!Number.isInteger(id) || id < 0) throw wrongValue("textStream.push", "id", "be an integer ≥ 0", id);
    this.ids.push(id);
    return this.advance(false);
  }

  /** What is left at the end, complete or not. */
  end(): string {
    return this.advance(true);
  }

  private advance(all: boolean): string {
    const text = this.tokenizer.decode(this.ids);
    if (!all && text.endsWith("\ufffd")) return "";
    const fresh = text.slice(this.emitted.length);
    this.emitted = text;
    // Decoding starts again at a line's end, so that long texts do not become slow.
    if (text.endsWith("\n")) {
      this.ids = [];
      this.emitted = "";
    }
    return fresh;
  }

  /** What `JSON.stringify` and `console.log` show. */
  toJSON(): object {
    return { type: "TextStream", tokenizer: this.tokenizer };
  }
}

printAsJson(TextStream);
