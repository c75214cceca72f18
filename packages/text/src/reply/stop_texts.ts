import { wrongKind, wrongValue } from "@mlxts/common/errors";
import { TextMatcher } from "./matcher.ts";

const MAX_STOP_TEXTS = 64;
const MAX_STOP_LENGTH = 4096;

/**
 * Ends a text where one of several stop texts is complete, wherever pieces of the text begin and end. What may be the
 * beginning of a stop text is held back until it is known not to be one.
 *
 * ```ts
 * const stops = new StopTexts(["\nUser:"]);
 * for await (const piece of pieces) {
 *   process.stdout.write(stops.push(piece));
 *   if (stops.found !== undefined) break;
 * }
 * process.stdout.write(stops.end());
 * ```
 */
export class StopTexts {
  /** The stop text that ended the text. Of two the one that is complete first, and of those the longest. */
  found: string | undefined;
  private readonly matcher: TextMatcher;

  /** @throws ArgumentTypeError or ArgumentRangeError unless `texts` are at most 64 texts of 1 to 4096 characters */
  constructor(texts: readonly string[]) {
    if (!Array.isArray(texts)) throw wrongKind("StopTexts", "texts", "be an array of texts", texts);
    if (texts.length > MAX_STOP_TEXTS)
      throw wrongValue("StopTexts", "texts", `be at most ${MAX_STOP_TEXTS}`, texts.length);
    for (const text of texts) {
      if (typeof text !== "string") throw wrongKind("StopTexts", "texts", "be texts", text);
      if (text.length < 1 || text.length > MAX_STOP_LENGTH)
        throw wrongValue("StopTexts", "texts", `have 1 to ${MAX_STOP_LENGTH} characters`, text.length);
    }
    this.matcher = new TextMatcher(texts);
  }

  /** Adds a piece, of one token or many. Returns the text that can be shown, nothing after a stop text. */
  push(piece: string): string {
    if (typeof piece !== "string") throw wrongKind("stopTexts.push", "piece", "be a string", piece);
    if (this.found !== undefined) return "";
    const { text, found } = this.matcher.push(piece);
    this.found = found;
    return text;
  }

  /** The text that was held back: the text has ended without a stop text. */
  end(): string {
    return this.found === undefined ? this.matcher.end() : "";
  }
}
