import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Template } from "@huggingface/jinja";
import { Tokenizer as HuggingFaceTokenizer } from "@huggingface/tokenizers";
import { MlxtsError, wrongValue } from "@mlxts/core";
import { readJson, readOptionalJson } from "./json.ts";

export interface ChatMessage {
  role: string;
  content: string;
  [key: string]: unknown;
}

/** A checkpoint's `tokenizer.json`, and its chat template if it has one. */
export class Tokenizer {
  private readonly tokenizer: HuggingFaceTokenizer;
  private readonly config: Record<string, unknown>;
  private readonly template: string | undefined;

  constructor(directory: string) {
    const path = join(directory, "tokenizer.json");
    const json = readJson(path);
    this.config = readOptionalJson(directory, "tokenizer_config.json") ?? {};
    try {
      this.tokenizer = new HuggingFaceTokenizer(json as never, this.config as never);
    } catch (error) {
      throw new MlxtsError("Io", `${path}: ${(error as Error).message}`, { path, operation: "parse" }, error);
    }
    const separate = join(directory, "chat_template.jinja");
    const inline = this.config.chat_template;
    this.template = existsSync(separate)
      ? readFileSync(separate, "utf8")
      : typeof inline === "string"
        ? inline
        : undefined;
  }

  encode(text: string): number[] {
    return this.tokenizer.encode(text).ids;
  }

  decode(ids: readonly number[]): string {
    return ids.length === 0
      ? ""
      : this.tokenizer.decode([...ids], { skip_special_tokens: true, clean_up_tokenization_spaces: false });
  }

  get hasChatTemplate(): boolean {
    return this.template !== undefined;
  }

  /** The prompt text of a conversation, ending where the assistant's answer begins. */
  chat(messages: readonly ChatMessage[], variables: Record<string, unknown> = {}): string {
    if (this.template === undefined)
      throw wrongValue(
        "tokenizer.chat",
        "messages",
        "have a chat template",
        "a checkpoint without one",
        "pass a plain prompt",
      );
    const tokens = Object.fromEntries(
      Object.entries(this.config).filter(([key, value]) => key.endsWith("_token") && typeof value === "string"),
    );
    return new Template(this.template).render({ ...tokens, add_generation_prompt: true, ...variables, messages });
  }
}

/** Text as ids arrive: characters are held back until all their bytes are there. */
export class TextStream {
  private readonly tokenizer: Tokenizer;
  private ids: number[] = [];
  private emitted = "";

  constructor(tokenizer: Tokenizer) {
    this.tokenizer = tokenizer;
  }

  /** The new text that `id` completes. */
  push(id: number): string {
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
}
