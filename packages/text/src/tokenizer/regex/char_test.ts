import type { CharSet } from "./ast.ts";

/** Whether characters are in a set. Answers are kept: a set of properties takes long to look up. */
export class CharTest {
  private readonly set: CharSet;
  private readonly tests: readonly (readonly RegExp[])[];
  /** By code point below 2¹⁶: 0 unknown, 1 no, 2 yes. */
  private known: Uint8Array = new Uint8Array(128);

  constructor(set: CharSet) {
    this.set = set;
    this.tests = [set, ...(set.and ?? [])].map(testsOf);
  }

  has(codePoint: number): boolean {
    if (codePoint >= this.known.length) {
      if (codePoint > 0xffff) return this.find(codePoint);
      const wider = new Uint8Array(0x10000);
      wider.set(this.known);
      this.known = wider;
    }
    const known = this.known[codePoint] as number;
    if (known !== 0) return known === 2;
    const found = this.find(codePoint);
    this.known[codePoint] = found ? 2 : 1;
    return found;
  }

  private find(codePoint: number): boolean {
    const text = String.fromCodePoint(codePoint);
    return this.tests.every((tests) => tests.some((test) => test.test(text))) !== this.set.negated;
  }
}

/** A set within an intersection is not negated and has no intersections of its own: see `parseClass`. */
function testsOf({ source, folded }: CharSet): RegExp[] {
  const tests = [new RegExp(`^${source}$`, "v")];
  if (folded !== undefined) tests.push(new RegExp(`^${folded}$`, "vi"));
  return tests;
}

/** Whether two characters are equal without regard to case, as Oniguruma compares them one by one. */
export function foldsEqual(a: number, b: number): boolean {
  return a === b || new RegExp(`^\\u{${a.toString(16)}}$`, "vi").test(String.fromCodePoint(b));
}
