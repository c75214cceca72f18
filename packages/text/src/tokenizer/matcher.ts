import type { MlxtsError } from "@mlxts/common/errors";
import { PatternError } from "./regex/ast.ts";
import { BacktrackingMatcher } from "./regex/matcher.ts";
import { isKnown, nativeSource } from "./regex/native.ts";
import { parsePattern } from "./regex/parser.ts";
import { compile } from "./regex/program.ts";
import type { Work } from "./work.ts";

/** Finds matches in a text, one after the other. */
export interface Matcher {
  /** Where the match begins and ends that was found last. */
  start: number;
  end: number;
  /** Finds the first match that begins at `from` or later. */
  find(text: string, from: number, work: Work): boolean;
}

class NativeMatcher implements Matcher {
  start = 0;
  end = 0;
  private readonly expression: RegExp;

  constructor(source: string) {
    this.expression = new RegExp(source, "gv");
  }

  find(text: string, from: number, _work: Work): boolean {
    const { expression } = this;
    expression.lastIndex = from;
    const found = expression.exec(text);
    if (found === null) return false;
    this.start = found.index;
    this.end = found.index + found[0].length;
    return true;
  }
}

export class TextMatcher implements Matcher {
  start = 0;
  end = 0;
  readonly wanted: string;

  constructor(wanted: string) {
    this.wanted = wanted;
  }

  find(text: string, from: number, work: Work): boolean {
    const start = text.indexOf(this.wanted, from);
    work.spend(((start < 0 ? text.length : start) - from) / 64);
    if (start < 0) return false;
    this.start = start;
    this.end = start + this.wanted.length;
    return true;
  }
}

export const textMatcher = (wanted: string): Matcher => new TextMatcher(wanted);

/**
 * A matcher for a regular expression of a file. Well-known patterns run as RegExp, all others with counted steps: files
 * are not trusted, and a RegExp cannot be interrupted.
 */
export function regexMatcher(source: string, refuse: (rule: string) => MlxtsError): Matcher {
  try {
    const pattern = parsePattern(source);
    return isKnown(source) ? new NativeMatcher(nativeSource(pattern.root)) : new BacktrackingMatcher(compile(pattern));
  } catch (error) {
    if (error instanceof PatternError)
      throw refuse(`be a regular expression that is supported: ${source.slice(0, 80)}: ${error.message}`);
    throw error;
  }
}

/** The matches in a text, as Oniguruma finds them: an empty one does not follow the end of another directly. */
export class Matches {
  start = 0;
  end = 0;
  private readonly matcher: Matcher;
  private readonly text: string;
  private readonly work: Work;
  private from = 0;
  private lastEnd = -1;

  constructor(matcher: Matcher, text: string, work: Work) {
    this.matcher = matcher;
    this.text = text;
    this.work = work;
  }

  /** Finds the next match: it is then from `start` to `end`. */
  next(): boolean {
    const { matcher, text, work } = this;
    while (this.from <= text.length && matcher.find(text, this.from, work)) {
      const { start, end } = matcher;
      if (start === end && end === this.lastEnd) {
        this.from = end + ((text.codePointAt(end) ?? 0) > 0xffff ? 2 : 1);
        continue;
      }
      this.from = end;
      this.lastEnd = end;
      this.start = start;
      this.end = end;
      return true;
    }
    return false;
  }
}
