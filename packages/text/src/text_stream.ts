import { printAsJson, wrongKind, wrongValue } from "@mlxts/common/errors";
import type { Tokenizer } from "./tokenizer.ts";

/**
 * Decodes ids as they come, in time in proportion to them. The texts put together are what `tokenizer.decode` gives for all
 * ids at once: what later ids may change, such as half a character, is held back.
 */
export class TextStream {
  private readonly tokenizer: Tokenizer;
  private stream: ReturnType<Tokenizer["decodeStream"]>;

  constructor(tokenizer: Tokenizer) {
    if (typeof (tokenizer as Partial<Tokenizer> | null | undefined)?.decodeStream !== "function")
      throw wrongKind("TextStream", "tokenizer", "be a Tokenizer", tokenizer);
    this.tokenizer = tokenizer;
    this.stream = tokenizer.decodeStream(true);
  }

  /** Adds an id; returns the text that it completes. */
  push(id: number): string {
    if (!Number.isInteger(id) || id < 0) throw wrongValue("textStream.push", "id", "be an integer ≥ 0", id);
    return this.stream.push(id);
  }

  /** The text that was held back, complete or not. Ids that are pushed afterwards begin a new text. */
  end(): string {
    const text = this.stream.end();
    this.stream = this.tokenizer.decodeStream(true);
    return text;
  }

  /** What `JSON.stringify` and `console.log` show. */
  toJSON(): object {
    return { type: "TextStream", tokenizer: this.tokenizer };
  }
}

printAsJson(TextStream);
