import { printAsJson, wrongKind, wrongValue } from "@mlxts/common/errors";
import { checkOptionNames } from "@mlxts/common/options";
import {
  type ChatTemplates,
  chatTemplatesOf,
  chooseTemplate,
  renderTemplate,
  type TemplateFiles,
  type TemplateLimits,
  takesParts,
} from "./chat_template.ts";
import { templateMessage } from "./conversation.ts";
import { specialTokensOf } from "./special_tokens.ts";
import type { TokenDecoder } from "./tokenizer/decoders.ts";
import { TokenizerEngine } from "./tokenizer/engine.ts";
import { plainValue, unusedMark, withMarks } from "./tokenizer/marks.ts";

export interface ChatMessage {
  role: string;
  /** A text, or parts of it: `[{ type: "text", text: "…" }]`. */
  content?: string | null | readonly { readonly type: string; readonly [field: string]: unknown }[];
  [key: string]: unknown;
}

/** Limits on the time and memory that a checkpoint's files may take. Raise them for files that you trust. */
export interface TokenizerOptions {
  /**
   * The most steps of work that one call of `encode` or `decode` may take, apart from 1024 steps more for each character of
   * a text and each id. A million steps take up to 30 ms. Default 2²⁵.
   */
  maxSteps?: number;
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

export interface EncodeOptions {
  /** Whether the special tokens of the file come before and after the text: `add` (the default) or `none`. */
  specialTokens?: "add" | "none";
  /**
   * Whether the text of a control token, such as `<|im_end|>`, becomes that token. Default true. False for texts of users:
   * what they write then stays text. Control tokens are special tokens, those of the form `<|…|>`, and others that the
   * checkpoint's chat templates write.
   */
  parse?: boolean;
}

export interface EncodeChatOptions extends ChatOptions {
  /** Whether texts of control tokens within messages and variables become these tokens. Default false. */
  parse?: boolean;
}

export interface DecodeOptions {
  /** Whether special tokens are left out. Default true. */
  skipSpecialTokens?: boolean;
}

/** The files of a checkpoint that a tokenizer is made of, by their names: parsed JSON, and texts. */
export interface TokenizerFiles extends TemplateFiles {
  "tokenizer.json": object;
  "special_tokens_map.json"?: object | undefined;
}

/** Steps of work for each character of a text and each id. */
const STEPS_PER_CHARACTER = 1024;
/** An asynchronous call pauses after so many milliseconds. */
const SLICE_MS = 8;

/**
 * The tokenizer of a checkpoint (`tokenizer.json`) and its chat templates. The files are not trusted: their regular
 * expressions and templates run with limits on time and memory.
 */
export class Tokenizer {
  private readonly engine: TokenizerEngine;
  private readonly path: string;
  private readonly templates: ChatTemplates | undefined;
  private readonly specialTokens: Readonly<Record<string, string>>;
  private readonly maxSteps: number;
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
      maxSteps: true,
      maxTemplateCharacters: true,
      maxTemplateSteps: true,
    });
    const { maxSteps = 2 ** 25, maxTemplateCharacters = 2 ** 23, maxTemplateSteps = 2 ** 24 } = options;
    for (const [name, value] of Object.entries({ maxSteps, maxTemplateCharacters, maxTemplateSteps })) {
      if (typeof value !== "number") throw wrongKind(op, name, "be a number", value);
      if (!(value >= 1 && value <= 0x7fffffff)) throw wrongValue(op, name, "be from 1 to 2147483647", value);
    }
    const json = files?.["tokenizer.json"];
    if (json === null || typeof json !== "object") throw wrongKind(op, "files", "have `tokenizer.json`, parsed", json);
    this.maxSteps = maxSteps;
    this.templateLimits = { maxTemplateCharacters, maxTemplateSteps };
    const pathOf = (name: string) => (directory === "" ? name : `${directory.replace(/\/+$/, "")}/${name}`);
    this.path = pathOf("tokenizer.json");
    const config = (files["tokenizer_config.json"] ?? {}) as Record<string, unknown>;
    this.templates = chatTemplatesOf(files, pathOf);
    this.specialTokens = {
      ...specialTokensOf(files["special_tokens_map.json"]),
      ...specialTokensOf(config),
    };
    const sources = [...(this.templates?.sources.values() ?? [])];
    this.engine = new TokenizerEngine(this.path, json as Record<string, unknown>, sources, maxSteps);
  }

  /**
   * The token ids of a text. Surrogates without their other half become U+FFFD.
   * @throws MlxtsError `LimitExceeded` when the file's steps take too much work or make the text too long, `Io` when the
   *   vocabulary has no token for a character and needs one for unknown text
   */
  encode(text: string, options: EncodeOptions = {}): number[] {
    const settings = this.checkEncode("tokenizer.encode", text, options);
    return this.engine.encode(text, settings, this.workFor(`encoding ${text.length} characters`, text.length));
  }

  /** The same as `encode`, with pauses for other work of the event loop. */
  async encodeAsync(text: string, options: EncodeOptions = {}): Promise<number[]> {
    const settings = this.checkEncode("tokenizer.encodeAsync", text, options);
    const work = this.workFor(`encoding ${text.length} characters`, text.length);
    const slices = this.engine.encodeInSlices(text, settings, work);
    for (let begin = performance.now(); ; ) {
      const { done, value } = slices.next();
      if (done) return value;
      if (performance.now() - begin < SLICE_MS) continue;
      await pause();
      begin = performance.now();
    }
  }

  private checkEncode(op: string, text: string, options: EncodeOptions) {
    if (typeof text !== "string") throw wrongKind(op, "text", "be a string", text);
    checkOptionNames<EncodeOptions>(op, options, { specialTokens: true, parse: true });
    const { specialTokens = "add", parse = true } = options;
    if (specialTokens !== "add" && specialTokens !== "none")
      throw wrongValue(op, "specialTokens", 'be "add" or "none"', specialTokens);
    if (typeof parse !== "boolean") throw wrongKind(op, "parse", "be true or false", parse);
    return { adds: specialTokens === "add", parses: parse };
  }

  private workFor(what: string, characters: number) {
    return this.engine.workFor(what, this.maxSteps + STEPS_PER_CHARACTER * characters);
  }

  /**
   * The text of token ids, without special tokens. Ids that are unknown are left out.
   * @throws MlxtsError `LimitExceeded` when the file's decoder takes too much work or makes too long a text
   */
  decode(ids: readonly number[], options: DecodeOptions = {}): string {
    const op = "tokenizer.decode";
    if (!Array.isArray(ids)) throw wrongKind(op, "ids", "be an array of token ids", ids);
    checkOptionNames<DecodeOptions>(op, options, { skipSpecialTokens: true });
    const { skipSpecialTokens = true } = options;
    if (typeof skipSpecialTokens !== "boolean")
      throw wrongKind(op, "skipSpecialTokens", "be true or false", skipSpecialTokens);
    for (let at = 0; at < ids.length; at++)
      if (!Number.isInteger(ids[at]) || (ids[at] as number) < 0)
        throw wrongValue(op, "ids", "be integers ≥ 0", `${String(ids[at])} at position ${at}`);
    const decoder = this.engine.decoderOf(this.workFor(`decoding ${ids.length} tokens`, ids.length));
    for (const id of ids) this.pushToken(decoder, id, skipSpecialTokens);
    decoder.end();
    return decoder.take();
  }

  private pushToken(decoder: TokenDecoder, id: number, skipsSpecial: boolean): void {
    const token = this.engine.token(id);
    if (token !== undefined && !(skipsSpecial && this.engine.isSpecial(id))) decoder.push(token);
  }

  /** @internal Decodes ids while they come, for a `TextStream`. */
  decodeStream(skipSpecialTokens: boolean): { push(id: number): string; end(): string } {
    const work = this.workFor("decoding a stream", 0);
    const decoder = this.engine.decoderOf(work);
    return {
      push: (id) => {
        work.renew();
        this.pushToken(decoder, id, skipSpecialTokens);
        return decoder.take();
      },
      end: () => {
        work.renew();
        decoder.end();
        return decoder.take();
      },
    };
  }

  /** The id of a token by its exact text, as it is in the vocabulary; undefined without it. */
  idOf(token: string): number | undefined {
    if (typeof token !== "string") throw wrongKind("tokenizer.idOf", "token", "be a string", token);
    return this.engine.idOf(token);
  }

  /** The token that ends a reply (`eos_token`) by its id, undefined if the files name none. */
  get eosId(): number | undefined {
    const { eos_token } = this.specialTokens;
    return eos_token === undefined ? undefined : this.engine.idOf(eos_token);
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
   * template, for example `tools` or `enable_thinking`. Arguments of tool calls may be JSON texts. A content may be parts
   * `{ type: "text", text }`: templates without a loop over them get their texts, joined.
   * @throws MlxtsError `ChatTemplate` for a broken template, with the file and, where it can be known, the line, and for
   *   messages that a template refuses, with its words; `LimitExceeded` for a template that takes too long or makes too
   *   much text
   */
  chat(messages: readonly ChatMessage[], variables: Record<string, unknown> = {}, options: ChatOptions = {}): string {
    return this.render("tokenizer.chat", messages, variables, options).text;
  }

  /** Renders a template; with `marks` there is a mark in texts of control tokens. */
  private render(
    op: string,
    messages: readonly ChatMessage[],
    variables: Record<string, unknown>,
    options: ChatOptions,
    marks = false,
  ): { text: string; mark?: string } {
    if (!Array.isArray(messages) || !messages.every((message) => message !== null && typeof message === "object"))
      throw wrongKind(op, "messages", "be an array of messages", messages);
    if (variables === null || typeof variables !== "object")
      throw wrongKind(op, "variables", "be an object", variables);
    checkOptionNames<ChatOptions>(op, options, { template: true });
    const { templates } = this;
    if (templates === undefined)
      throw wrongValue(op, "messages", "have a chat template", "a checkpoint without one", "pass a plain prompt");
    const source = chooseTemplate(templates, options.template, Array.isArray(variables.tools));
    const parts = takesParts(templates.path, source);
    const all = { ...variables, messages: messages.map((message) => templateMessage(message, parts)) };
    const plain = marks ? (plainValue(all) as typeof all) : all;
    const mark = marks ? unusedMark([plain, ...templates.sources.values()]) : undefined;
    const given = mark === undefined ? plain : this.marked(plain, mark);
    const values = { ...this.specialTokens, tools: null, documents: null, add_generation_prompt: true, ...given };
    const text = renderTemplate(templates.path, source, values, this.templateLimits);
    return mark === undefined ? { text } : { text, mark };
  }

  /** The values for a template with a mark in the texts of control tokens. */
  private marked(values: Record<string, unknown>, mark: string): Record<string, unknown> {
    const { contents, normalized } = this.engine.controlTokens();
    const normalize = (text: string) =>
      this.engine.normalize(text, this.workFor("looking for control tokens in a chat", text.length));
    return withMarks(values, contents, mark, { contents: normalized, normalize }) as Record<string, unknown>;
  }

  /**
   * The ids of a conversation: those of the text that `chat` gives, without the special tokens that `encode` adds, since the
   * template writes its own. Texts of control tokens within messages and variables stay text, unless `parse` is set; only
   * the tags of the block of reasoning that an assistant's message begins with are left to the template.
   *
   * To keep them text, a noncharacter is put into each while the template runs. So a template that looks for such a text in
   * a message does not find it, one that counts characters counts it too; and a template that cuts a message into pieces,
   * or changes its letters, and puts these together again could still make the text of a control token.
   */
  encodeChat(
    messages: readonly ChatMessage[],
    variables: Record<string, unknown> = {},
    options: EncodeChatOptions = {},
  ): number[] {
    const op = "tokenizer.encodeChat";
    checkOptionNames<EncodeChatOptions>(op, options, { template: true, parse: true });
    const { parse = false, ...chatOptions } = options;
    if (typeof parse !== "boolean") throw wrongKind(op, "parse", "be true or false", parse);
    const { text: rendered, mark } = this.render(op, messages, variables, chatOptions, !parse);
    // Python's and JSON's escapes of the mark, where a template has them written.
    const text = mark === undefined ? rendered : rendered.replaceAll(escaped(mark), mark);
    const work = this.workFor(`encoding a chat of ${text.length} characters`, text.length);
    return this.engine.encode(text, { adds: false, parses: true, mark }, work);
  }

  /** What `JSON.stringify` and `console.log` show. */
  toJSON(): object {
    const { path, chatTemplates } = this;
    return { type: "Tokenizer", path, chatTemplates };
  }
}

printAsJson(Tokenizer);

const escaped = (mark: string) => `\\u${mark.charCodeAt(0).toString(16)}`;

/** Lets other work of the event loop go first. */
const pause = (): Promise<void> =>
  new Promise((resolve) => {
    if (typeof setImmediate === "function") setImmediate(resolve);
    else setTimeout(resolve, 0);
  });
