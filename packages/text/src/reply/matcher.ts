/** What `TextMatcher.push` found. */
export interface MatchedText {
  /** Text that belongs to no match, and can belong to none that the following text completes. */
  text: string;
  /** The text that was found, if one was: what follows it in the pushed text is in `rest`. */
  found?: string;
  rest: string;
}

/** For each length of a beginning of `text`, the longest shorter beginning that it ends with (Knuth, Morris, Pratt). */
function bordersOf(text: string): Uint32Array {
  const borders = new Uint32Array(text.length + 1);
  let length = 0;
  for (let at = 1; at < text.length; at++) {
    while (length > 0 && text[at] !== text[length]) length = borders[length] as number;
    if (text[at] === text[length]) length++;
    borders[at + 1] = length;
  }
  return borders;
}

/**
 * Finds the first of several texts in a stream of pieces. The one that ends first counts, of those that end together the
 * longest, so that the result does not depend on how the stream is cut. Time is in proportion to pieces times texts.
 */
export class TextMatcher {
  private readonly texts: readonly string[];
  private readonly borders: readonly Uint32Array[];
  /** How much of each text the end of the stream matches. */
  private readonly matched: Uint32Array;
  private held = "";

  constructor(texts: readonly string[]) {
    this.texts = texts;
    this.borders = texts.map(bordersOf);
    this.matched = new Uint32Array(texts.length);
  }

  push(piece: string): MatchedText {
    const text = this.held + piece;
    for (let at = this.held.length; at < text.length; at++) {
      const found = this.step(text[at] as string);
      if (found === undefined) continue;
      this.matched.fill(0);
      this.held = "";
      return { text: text.slice(0, at + 1 - found.length), found, rest: text.slice(at + 1) };
    }
    const keep = Math.max(0, ...this.matched);
    this.held = text.slice(text.length - keep);
    return { text: text.slice(0, text.length - keep), rest: "" };
  }

  /** The text that was held back because it began like one of the texts. */
  end(): string {
    const { held } = this;
    this.held = "";
    this.matched.fill(0);
    return held;
  }

  private step(unit: string): string | undefined {
    let found: string | undefined;
    for (const [index, text] of this.texts.entries()) {
      const borders = this.borders[index] as Uint32Array;
      let length = this.matched[index] as number;
      while (length > 0 && text[length] !== unit) length = borders[length] as number;
      if (text[length] === unit) length++;
      this.matched[index] = length;
      if (length === text.length && length > (found?.length ?? 0)) found = text;
    }
    return found;
  }
}
