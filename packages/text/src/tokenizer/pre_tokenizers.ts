import { toByteCharacters } from "./byte_level.ts";
import { eachMatch, type Matcher, regexMatcher, textMatcher } from "./matcher.ts";
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
}

const BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"] as const;
export type Behavior = (typeof BEHAVIORS)[number];

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
    if (text === "") return;
    const { behavior, invert } = this;
    /** What is merged to the piece that comes next begins here. */
    let begin = 0;
    let end = 0;
    let previous = false;
    let any = false;
    const flush = () => {
      if (end > begin) pieces.push(text.slice(begin, end));
      begin = end;
    };
    const part = (to: number, isMatch: boolean) => {
      const joins =
        any &&
        (behavior === "MergedWithPrevious"
          ? isMatch && !previous
          : behavior === "MergedWithNext"
            ? previous && !isMatch
            : behavior === "Contiguous" && isMatch === previous);
      if (!joins) flush();
      if (behavior === "Removed" && isMatch) begin = to;
      end = to;
      previous = isMatch;
      any = true;
    };
    let last = 0;
    eachMatch(this.matcher, text, work, (start, stop) => {
      if (start > last) part(start, invert);
      part(stop, !invert);
      last = stop;
    });
    if (last < text.length) part(text.length, invert);
    flush();
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
    let current = [text];
    for (const step of this.steps) {
      const next: string[] = [];
      for (const [index, piece] of current.entries()) step.split(piece, startsText && index === 0, next, work);
      work.spend(next.length);
      current = next;
    }
    for (const piece of current) pieces.push(piece);
  }
}

class Metaspace implements PreTokenizer {
  private readonly replacement: string;
  private readonly scheme: "always" | "first" | "never";
  private readonly splitter: Split | undefined;

  constructor(fields: StepFields) {
    this.replacement = fields.character("replacement");
    this.scheme = prependScheme(fields);
    const splits = fields.boolean("split", true);
    this.splitter = splits ? new Split(textMatcher(this.replacement), "MergedWithNext") : undefined;
  }

  split(text: string, startsText: boolean, pieces: string[], work: Work): void {
    const { replacement, scheme, splitter } = this;
    let changed = text.split(" ").join(replacement);
    const prepends = scheme === "always" || (scheme === "first" && startsText);
    if (prepends && !changed.startsWith(replacement)) changed = replacement + changed;
    work.spend(changed.length / 16);
    if (splitter) splitter.split(changed, false, pieces, work);
    else if (changed !== "") pieces.push(changed);
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
export class ByteLevel implements PreTokenizer {
  private readonly addsSpace: boolean;
  private readonly splitter: Split | undefined;
  /** Whether pieces are left as they are: the model then takes their bytes itself. */
  leavesText = false;

  constructor(fields: StepFields) {
    this.addsSpace = fields.boolean("add_prefix_space", true);
    const refuse = (rule: string) => fields.refuse(rule);
    const splits = fields.boolean("use_regex", true);
    this.splitter = splits ? new Split(regexMatcher(GPT2, refuse), "Isolated") : undefined;
  }

  split(text: string, _startsText: boolean, pieces: string[], work: Work): void {
    const changed = this.addsSpace && !text.startsWith(" ") ? ` ${text}` : text;
    const begin = pieces.length;
    if (this.splitter) this.splitter.split(changed, false, pieces, work);
    else if (changed !== "") pieces.push(changed);
    if (this.leavesText) return;
    for (let at = begin; at < pieces.length; at++) {
      pieces[at] = toByteCharacters(pieces[at] as string);
      work.spend((pieces[at] as string).length);
    }
  }
}

class FixedLength implements PreTokenizer {
  private readonly length: number;

  constructor(length: number) {
    this.length = length;
  }

  split(text: string, _startsText: boolean, pieces: string[], work: Work): void {
    const characters = [...text];
    work.spend(characters.length);
    for (let at = 0; at < characters.length; at += this.length)
      pieces.push(characters.slice(at, at + this.length).join(""));
  }
}

class UnicodeScripts implements PreTokenizer {
  split(text: string, _startsText: boolean, pieces: string[], work: Work): void {
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
