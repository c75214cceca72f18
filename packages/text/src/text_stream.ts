import { printAsJson, wrongKind, wrongValue } from "@mlxts/common/errors";
import type { Tokenizer } from "./tokenizer.ts";

/** Decodes ids as they come: a character is held back until all its bytes are there. */
export class TextStream {
  private readonly tokenizer: Tokenizer;
  private ids: number[] = [];
  private emitted = "";

  constructor(tokenizer: Tokenizer) {
    if (typeof (tokenizer as Partial<Tokenizer> | null | undefined)?.decode !== "function")
      throw wrongKind("TextStream", "tokenizer", "be a Tokenizer", tokenizer);
    this.tokenizer = tokenizer;
  }

  /** Adds an id; returns the text that it completes. */
  push(id: number): string {
    if (!Number.isInteger(id) || id < 0) throw wrongValue("textStream.push", "id", "be an integer ≥ 0", id);
    this.ids.push(id);
    return this.advance(false);
  }

  /** The text that was held back, complete or not. */
  end(): string {
    return this.advance(true);
  }

  /** The text beyond what was emitted; `all`: incomplete characters too. */
  private advance(all: boolean): string {
    const text = this.tokenizer.decode(this.ids);
    if (!all && text.endsWith("\ufffd")) return "";
    const fresh = text.slice(this.emitted.length);
    this.emitted = text;
    // Decoding starts anew after a line, so that the time does not grow with the text.
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
