import { toByteCharacters } from "./byte_level.ts";
import { type Matcher, Matches, regexMatcher, textMatcher } from "./matcher.ts";
import { MAX_CHARACTERS, TOO_LONG } from "./normalizers.ts";
import { scriptStarts } from "./scripts.ts";
import type { StepFields } from "./step_fields.ts";
import type { Work } from "./work.ts";

/** Splits pieces of a text further, or changes them. */
export interface PreTokenizer {
  /**
   * Appends the pieces of `text` to `pieces`, without empty ones.
   * @param startsText whether `text` is the beginning of the whole text
   */
  split(text: string, startsText: boolean, pieces: string[], work: Work): void;
  /** The same for long texts, some pieces at a time. */
  slices(text: string, startsText: boolean, work: Work): Generator<string[]>;
}

const BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"] as const;
export type Behavior = (typeof BEHAVIORS)[number];

/** So many pieces are given at a time. */
const PIECES_IN_A_SLICE = 2048;
/** Longer pieces are split in slices by the steps that follow. */
const LONG_PIECE = 1 << 14;

/** Splits a text at the matches of a pattern, some pieces at a time. */
class SplitRun {
  private readonly text: string;
  private readonly behavior: Behavior;
  private readonly invert: boolean;
  private readonly matches: Matches;
  /** The piece that may still grow. */
  private begin = 0;
  private end = 0;
  private previous = false;
  private any = false;
  private last = 0;

  constructor(text: string, matcher: Matcher, behavior: Behavior, invert: boolean, work: Work) {
    this.text = text;
    this.behavior = behavior;
    this.invert = invert;
    this.matches = new Matches(matcher, text, work);
  }

  /** Appends pieces until there are `most`. Returns whether the text has ended. */
  fill(pieces: string[], most: number): boolean {
    const { text, matches, invert } = this;
    while (pieces.length < most) {
      if (!matches.next()) {
        if (this.last < text.length) this.part(text.length, invert, pieces);
        this.flush(pieces);
        return true;
      }
      if (matches.start > this.last) this.part(matches.start, invert, pieces);
      this.part(matches.end, !invert, pieces);
      this.last = matches.end;
    }
    return false;
  }

  /** The text up to `to` is a match, or what is between two. */
  private part(to: number, isMatch: boolean, pieces: string[]): void {
    if (!this.joins(isMatch)) this.flush(pieces);
    if (this.behavior === "Removed" && isMatch) this.begin = to;
    this.end = to;
    this.previous = isMatch;
    this.any = true;
  }

  /** Whether a part belongs to the piece before it. */
  private joins(isMatch: boolean): boolean {
    if (!this.any) return false;
    switch (this.behavior) {
      case "MergedWithPrevious":
        return isMatch && !this.previous;
      case "MergedWithNext":
        return !isMatch && this.previous;
      case "Contiguous":
        return isMatch === this.previous;
      default:
        return false;
    }
  }

  private flush(pieces: string[]): void {
    if (this.end > this.begin) pieces.push(this.text.slice(this.begin, this.end));
    this.begin = this.end;
  }
}

/** Splits at the matches of a pattern. `invert`: what the pattern does not match counts as its matches. */
export class Split implements PreTokenizer {
  private readonly matcher: Matcher;
  private readonly behavior: Behavior;
  private readonly invert: boolean;

  constructor(matcher: Matcher, behavior: Behavior, invert = false) {
    this.matcher = matcher;
    this.behavior = behavior;
    this.invert = invert;
  }

  split(text: string, _startsText: boolean, pieces: string[], work: Work): void {
    if (text !== "") this.run(text, work).fill(pieces, Number.POSITIVE_INFINITY);
  }

  *slices(text: string, _startsText: boolean, work: Work): Generator<string[]> {
    const run = this.run(text, work);
    for (let ended = text === ""; !ended; ) {
      const pieces: string[] = [];
      ended = run.fill(pieces, PIECES_IN_A_SLICE);
      yield pieces;
    }
  }

  private run(text: string, work: Work): SplitRun {
    return new SplitRun(text, this.matcher, this.behavior, this.invert, work);
  }
}

/** A step that changes a text and then leaves it whole or lets another split it. */
abstract class ChangingStep implements PreTokenizer {
  protected abstract readonly splitter: PreTokenizer | undefined;
  protected abstract change(text: string, startsText: boolean, work: Work): string;
  /** Changes pieces after splitting. */
  protected finish(_pieces: string[], _begin: number, _work: Work): void {}

  split(text: string, startsText: boolean, pieces: string[], work: Work): void {
    if (text === "") return;
    const begin = pieces.length;
    const changed = this.change(text, startsText, work);
    if (this.splitter) this.splitter.split(changed, false, pieces, work);
    else pieces.push(changed);
    this.finish(pieces, begin, work);
  }

  *slices(text: string, startsText: boolean, work: Work): Generator<string[]> {
    if (text === "") return;
    const changed = this.change(text, startsText, work);
    for (const pieces of this.splitter ? this.splitter.slices(changed, false, work) : [[changed]]) {
      this.finish(pieces, 0, work);
      yield pieces;
    }
  }
}

/** Splits before and after each character that a test holds for, or between characters for which it differs. */
const byPattern = (source: string, behavior: Behavior, invert = false): Split => {
  const matcher: Matcher & { expression: RegExp } = {
    start: 0,
    end: 0,
    expression: new RegExp(source, "gv"),
    find(text, from) {
      this.expression.lastIndex = from;
      const found = this.expression.exec(text);
      if (found === null) return false;
      this.start = found.index;
      this.end = found.index + found[0].length;
      return true;
    },
  };
  return new Split(matcher, behavior, invert);
};

const PUNCTUATION = "[\\p{P}\\u0021-\\u002f\\u003a-\\u0040\\u005b-\\u0060\\u007b-\\u007e]";
/** `\w` as the library's Rust expressions have it. */
export const RUST_WORD = "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]";
const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/** Splits with several pre-tokenizers, one after the other. */
class Sequence implements PreTokenizer {
  readonly steps: readonly PreTokenizer[];

  constructor(steps: readonly PreTokenizer[]) {
    this.steps = steps;
  }

  split(text: string, startsText: boolean, pieces: string[], work: Work): void {
    this.splitFrom(0, [text], startsText, pieces, work);
  }

  private splitFrom(first: number, texts: string[], startsText: boolean, pieces: string[], work: Work): void {
    let current = texts;
    for (let index = first; index < this.steps.length; index++) {
      const step = this.steps[index] as PreTokenizer;
      const next: string[] = [];
      for (let at = 0; at < current.length; at++) step.split(current[at] as string, startsText && at === 0, next, work);
      work.spend(next.length);
      current = next;
    }
    for (const piece of current) pieces.push(piece);
  }

  slices(text: string, startsText: boolean, work: Work): Generator<string[]> {
    return this.slicesFrom(0, text, startsText, work);
  }

  private *slicesFrom(first: number, text: string, startsText: boolean, work: Work): Generator<string[]> {
    const step = this.steps[first];
    if (step === undefined) {
      yield [text];
      return;
    }
    let starts = startsText;
    for (const slice of step.slices(text, startsText, work)) {
      let short: string[] = [];
      const flush = () => {
        const pieces: string[] = [];
        this.splitFrom(first + 1, short, starts, pieces, work);
        starts &&= short.length === 0;
        short = [];
        return pieces;
      };
      for (const piece of slice) {
        if (piece.length <= LONG_PIECE) short.push(piece);
        else {
          yield flush();
          yield* this.slicesFrom(first + 1, piece, starts, work);
          starts = false;
        }
      }
      yield flush();
    }
  }
}

class Metaspace extends ChangingStep {
  protected readonly splitter: Split | undefined;
  private readonly replacement: string;
  private readonly scheme: "always" | "first" | "never";

  constructor(fields: StepFields) {
    super();
    this.replacement = fields.character("replacement");
    this.scheme = prependScheme(fields);
    const splits = fields.boolean("split", true);
    this.splitter = splits ? new Split(textMatcher(this.replacement), "MergedWithNext") : undefined;
  }

  protected override change(text: string, startsText: boolean, work: Work): string {
    const { replacement, scheme } = this;
    work.spend(text.length / 16);
    const changed = text.split(" ").join(replacement);
    const prepends = scheme === "always" || (scheme === "first" && startsText);
    return prepends && !changed.startsWith(replacement) ? replacement + changed : changed;
  }
}

/** `prepend_scheme`, or what older files say instead. */
export function prependScheme(fields: StepFields): "always" | "first" | "never" {
  const adds = fields.boolean("add_prefix_space", true);
  const scheme = fields.choice("prepend_scheme", ["always", "first", "never"], adds ? "always" : "never");
  if (!adds && scheme !== "never") throw fields.refuse('be "never" beside `add_prefix_space: false`', "prepend_scheme");
  return scheme;
}

/** Splits as GPT-2 does; the pieces are then written in the characters that stand for their bytes. */
export class ByteLevel extends ChangingStep {
  protected readonly splitter: Split | undefined;
  private readonly addsSpace: boolean;
  /** Whether pieces are left as they are: the model then takes their bytes itself. */
  leavesText = false;

  constructor(fields: StepFields) {
    super();
    this.addsSpace = fields.boolean("add_prefix_space", true);
    const refuse = (rule: string) => fields.refuse(rule);
    const splits = fields.boolean("use_regex", true);
    this.splitter = splits ? new Split(regexMatcher(GPT2, refuse), "Isolated") : undefined;
  }

  protected override change(text: string): string {
    return this.addsSpace && !text.startsWith(" ") ? ` ${text}` : text;
  }

  protected override finish(pieces: string[], begin: number, work: Work): void {
    if (this.leavesText) return;
    for (let at = begin; at < pieces.length; at++) {
      const piece = pieces[at] as string;
      work.spend(4 * piece.length);
      if (piece.length > MAX_CHARACTERS) throw work.exceeded(TOO_LONG);
      pieces[at] = toByteCharacters(piece);
    }
  }
}

/** A step that splits a text at once. */
abstract class WholeStep implements PreTokenizer {
  abstract split(text: string, startsText: boolean, pieces: string[], work: Work): void;

  *slices(text: string, startsText: boolean, work: Work): Generator<string[]> {
    const pieces: string[] = [];
    this.split(text, startsText, pieces, work);
    yield pieces;
  }
}

class FixedLength extends WholeStep {
  private readonly length: number;

  constructor(length: number) {
    super();
    this.length = length;
  }

  override split(text: string, _startsText: boolean, pieces: string[], work: Work): void {
    const characters = [...text];
    work.spend(characters.length);
    for (let at = 0; at < characters.length; at += this.length)
      pieces.push(characters.slice(at, at + this.length).join(""));
  }
}

class UnicodeScripts extends WholeStep {
  override split(text: string, _startsText: boolean, pieces: string[], work: Work): void {
    work.spend(8 * text.length);
    const starts = scriptStarts(text);
    for (const [index, start] of starts.entries()) pieces.push(text.slice(start, starts[index + 1]));
  }
}

export function readPreTokenizer(fields: StepFields): PreTokenizer {
  switch (fields.type) {
    case "Sequence":
      return new Sequence(fields.steplist("pretokenizers").map(readPreTokenizer));
    case "BertPreTokenizer":
      return new Sequence([byPattern("\\p{White_Space}", "Removed"), byPattern(PUNCTUATION, "Isolated")]);
    case "ByteLevel":
      return new ByteLevel(fields);
    case "CharDelimiterSplit":
      return new Split(textMatcher(fields.character("delimiter")), "Removed");
    case "Metaspace":
      return new Metaspace(fields);
    case "Whitespace":
      return byPattern(`${RUST_WORD}+|[^${RUST_WORD}\\p{White_Space}]+`, "Removed", true);
    case "WhitespaceSplit":
      return byPattern("\\p{White_Space}", "Removed");
    case "Punctuation":
      return byPattern(PUNCTUATION, fields.choice("behavior", BEHAVIORS, "Isolated"));
    case "Digits":
      return byPattern("\\p{N}", fields.boolean("individual_digits", false) ? "Isolated" : "Contiguous");
    case "FixedLength":
      return new FixedLength(fields.count("length", 5, 1));
    case "UnicodeScripts":
      return new UnicodeScripts();
    case "Split": {
      const behavior = fields.choice("behavior", BEHAVIORS);
      return new Split(fields.matcher("pattern"), behavior, fields.boolean("invert", false));
    }
    default:
      throw fields.unsupported();
  }
}

/** The `ByteLevel` step that comes last, if one does. */
export function lastByteLevel(step: PreTokenizer | undefined): ByteLevel | undefined {
  if (step instanceof ByteLevel) return step;
  return step instanceof Sequence ? lastByteLevel(step.steps.at(-1)) : undefined;
}
