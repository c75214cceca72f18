import { readFileSync } from "node:fs";
import { brotliDecompressSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { regexMatcher } from "../src/tokenizer/matcher.ts";
import { Split } from "../src/tokenizer/pre_tokenizers.ts";
import { Work } from "../src/tokenizer/work.ts";

const path = new URL("../../../fixtures/goldens/patterns.json.br", import.meta.url);
const cases = JSON.parse(brotliDecompressSync(readFileSync(path)).toString()) as [string, string, string[]][];
const refuse = (rule: string) => new Error(rule) as never;
const split = (pattern: string, text: string) => {
  const pieces: string[] = [];
  new Split(regexMatcher(pattern, refuse), "Isolated").split(text, true, pieces, new Work("", "", 1e8));
  return pieces;
};

describe("regular expressions", () => {
  it("split as Oniguruma does, or say what is not supported", () => {
    let refused = 0;
    for (const [pattern, text, pieces] of cases) {
      let found: string[];
      try {
        found = split(pattern, text);
      } catch (error) {
        expect((error as Error).message).toContain("a class within a class under (?i) is not supported");
        refused++;
        continue;
      }
      expect(found, `${pattern} in ${JSON.stringify(text)}`).toEqual(pieces);
    }
    expect(refused).toBeLessThan(cases.length / 100);
    expect(cases.length).toBeGreaterThan(2000);
  });

  it.each([
    ["(a", "a bracket ( is not closed"],
    ["a)", "a bracket ) is closed"],
    ["[a", "a class [ is not closed"],
    ["*a", "a quantifier follows nothing"],
    ["(?~a)", "(?~ is not supported"],
    ["\\X", "\\X is not supported"],
    ["(a)\\g<1>", "\\g is not supported"],
    ["\\p{Nothing}", "\\p{Nothing} is not supported"],
    ["(?:ab){5000}{5000}", "counts make it too large"],
    ["(".repeat(100) + ")".repeat(100), "groups are more than 64 deep"],
  ])("%s is refused by name", (pattern, message) => {
    expect(() => split(pattern, "a")).toThrow(message);
  });
});
