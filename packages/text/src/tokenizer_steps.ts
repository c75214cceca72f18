import type { MlxtsError } from "@mlxts/common/errors";

const MAX_STEPS = 256;
const MAX_DEPTH = 8;
const MAX_PATTERN_LENGTH = 1 << 14;

/** The patterns with which Qwen, Llama 3 and GPT-2 split texts. Their time is in proportion to the text. */
const LINEAR_PATTERNS: ReadonlySet<unknown> = new Set([
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
]);

/** Steps whose time is in proportion to the text, unless a pattern of theirs takes longer. */
const LINEAR_STEPS: ReadonlySet<string> = new Set([
  "Sequence",
  "Split",
  "ByteLevel",
  "NFC",
  "NFD",
  "NFKC",
  "NFKD",
  "TemplateProcessing",
]);

export type Json = Record<string, unknown>;
export const isObject = (value: unknown): value is Json =>
  value !== null && typeof value === "object" && !Array.isArray(value);

/** Makes the error for a part of the file that breaks a rule. */
export type Refuse = (part: string, rule: string) => MlxtsError;

/**
 * Checks the steps of a `tokenizer.json`: its normalizers, pretokenizers, post-processors and decoders. Finds by how much
 * they make texts longer, and makes their replacements plain texts.
 */
export class StepChecker {
  /** Regular expressions of the file that were found. */
  regexes = 0;
  /** Steps whose time may grow faster than the text. */
  slowSteps = 0;
  private steps = 0;
  private readonly refuse: Refuse;

  constructor(refuse: Refuse) {
    this.refuse = refuse;
  }

  /**
   * At most so many times as long the step at `where` makes a text, the steps within it included. `seen`: types of the
   * steps before it.
   */
  growth(where: string, step: unknown, seen = new Set<string>(), depth = 0): number {
    if (step === null || step === undefined) return 1;
    if (!isObject(step)) throw this.refuse(where, "be an object");
    if (++this.steps > MAX_STEPS || depth > MAX_DEPTH)
      throw this.refuse(where, `have at most ${MAX_STEPS} steps, ${MAX_DEPTH} deep`);
    const type = String(step.type);
    const pattern = this.checkPattern(where, type, step.pattern);
    let factor = 1;
    for (const part of this.partsOf(where, step)) factor *= this.growth(where, part, seen, depth + 1);
    factor *= this.ownGrowth(where, type, step, pattern, seen);
    seen.add(type);
    if (factor > 1e6) throw this.refuse(where, "not make texts a million times as long");
    return factor;
  }

  /** The pattern of a step, empty when it has none. */
  private checkPattern(where: string, type: string, given: unknown): Json {
    const pattern = isObject(given) ? given : {};
    for (const value of Object.values(pattern))
      if (typeof value !== "string" || value.length > MAX_PATTERN_LENGTH)
        throw this.refuse(`${where}.pattern`, `be a text of at most ${MAX_PATTERN_LENGTH} characters`);
    if (!LINEAR_STEPS.has(type) || (pattern.Regex !== undefined && !LINEAR_PATTERNS.has(pattern.Regex)))
      this.slowSteps++;
    if (typeof pattern.Regex === "string") this.regexes++;
    else if ((type === "Split" || type === "Replace") && typeof pattern.String !== "string")
      throw this.refuse(`${where}.pattern`, "have a `Regex` or a `String`");
    return pattern;
  }

  /** The steps within a step. */
  private partsOf(where: string, step: Json): unknown[] {
    return ["normalizers", "pretokenizers", "decoders", "processors"].flatMap((name) => {
      const list = step[name] ?? [];
      if (!Array.isArray(list)) throw this.refuse(`${where}.${name}`, "be a list");
      return list as unknown[];
    });
  }

  /** The length of a text in a field of a step; 0 without the field. */
  private lengthOf(where: string, step: Json, name: string): number {
    const value = step[name] ?? "";
    if (typeof value !== "string" || value.length > MAX_PATTERN_LENGTH)
      throw this.refuse(`${where}.${name}`, `be a text of at most ${MAX_PATTERN_LENGTH} characters`);
    return value.length;
  }

  /** At most so many times as long a step itself makes a text. */
  private ownGrowth(where: string, type: string, step: Json, pattern: Json, seen: ReadonlySet<string>): number {
    switch (type) {
      case "Replace":
        return this.replaceGrowth(where, step, pattern);
      case "Split": {
        // Texts of the pattern's groups come between the pieces.
        const removes = String(step.behavior).toLowerCase() === "removed";
        return removes && typeof pattern.Regex === "string" ? pattern.Regex.split("(").length : 1;
      }
      case "Prepend":
        return 1 + this.lengthOf(where, step, "prepend") / 16;
      case "Metaspace":
        if (`${step.replacement}${step.str_rep}`.includes("$"))
          throw this.refuse(`${where}.replacement`, "be a text without `$`");
        return Math.max(1, this.lengthOf(where, step, "replacement"), this.lengthOf(where, step, "str_rep")) + 1;
      case "ByteLevel":
        return step.add_prefix_space === true || seen.has(type) ? 3 : 1;
      case "BertNormalizer":
        return 3;
      case "FixedLength":
        if (!(Number.isInteger(step.length) && (step.length as number) >= 1))
          throw this.refuse(`${where}.length`, "be an integer ≥ 1");
        return 1;
      case "TemplateProcessing": {
        const list = step.single ?? [];
        if (!Array.isArray(list) || list.length > MAX_STEPS)
          throw this.refuse(`${where}.single`, `be a list of at most ${MAX_STEPS}`);
        return Math.max(1, list.filter((item) => isObject(item) && "Sequence" in item).length);
      }
      default:
        return 1;
    }
  }

  private replaceGrowth(where: string, step: Json, pattern: Json): number {
    const content = this.lengthOf(where, step, "content");
    if (content === 0) return 1;
    // A plain text, as in the library that defines the format; JavaScript would insert parts of the input for `$` signs.
    step.content = (step.content as string).replaceAll("$", "$$$$");
    const least = typeof pattern.String === "string" ? pattern.String.length : 0;
    return least > 0 ? Math.max(1, content / least) : content + 1;
  }
}
