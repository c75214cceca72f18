import { type Node, PatternError } from "./ast.ts";
import { sourceOf } from "./class_parser.ts";

/**
 * Patterns of well-known models, which a RegExp matches in time in proportion to the text: those of GPT-2, Llama 3, Qwen,
 * DeepSeek, o200k, Tekken and others that are made alike. Any other pattern may be made to take for ever.
 */
const CONTRACTIONS = ["(?i:'s|'t|'re|'ve|'m|'ll|'d)", "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"];
const LETTERS = ["[^\\r\\n\\p{L}\\p{N}]?\\p{L}+", "[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+"];
const NUMBERS = ["\\p{N}", "\\p{N}{1,3}", "\\p{N}+", "\\p{N}{1,2}"];
const SIGNS = [" ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*", " ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*"];
const SPACE = "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const CASED = [
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+",
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*",
];
const CASED_CONTRACTIONS = ["", "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"];
const CASED_SIGNS = [" ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*", " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"];

function* knownPatterns(): Generator<string> {
  for (const number of NUMBERS) {
    for (const contraction of CONTRACTIONS)
      for (const letters of LETTERS)
        for (const signs of SIGNS) yield `${contraction}|${letters}|${number}|${signs}|${SPACE}`;
    for (const end of CASED_CONTRACTIONS)
      for (const signs of CASED_SIGNS) yield `${CASED.map((part) => part + end).join("|")}|${number}|${signs}|${SPACE}`;
    yield number;
  }
  yield "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
  // DeepSeek-V3 and R1, then DeepSeek-Coder and V2, step by step.
  yield "[一-龥\u3040-ゟ゠-ヿ]+";
  yield "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";
  yield "[\r\n]";
  yield "\\s?\\p{L}+";
  yield "\\s?\\p{P}+";
  yield "[一-龥ࠀ-一가-퟿]+";
  yield " ?[^(\\s|[.,!?…。，、।۔،])]+";
  yield "[0-9][0-9][0-9]";
  yield "[0-9]";
  yield "\\d";
  yield "\\n";
  yield " ";
  yield "\\s";
  yield " {2,}";
}

let known: ReadonlySet<string> | undefined;

export function isKnown(pattern: string): boolean {
  known ??= new Set(knownPatterns());
  return known.has(pattern);
}

/** A letter with those that equal it without regard to case. */
function foldedLetter(source: string): string {
  const codePoint = Number.parseInt(/^\[\\u\{([0-9a-f]+)\}\]$/.exec(source)?.[1] ?? "", 16);
  if (!(codePoint < 128)) throw new PatternError("a folded class is left to the matcher");
  const letter = String.fromCodePoint(codePoint);
  const more = { s: "\\u017f", k: "\\u212a" }[letter.toLowerCase()] ?? "";
  return /[a-z]/i.test(letter) ? `[${letter.toLowerCase()}${letter.toUpperCase()}${more}]` : source;
}

/** The source of a RegExp with the flag `v` that matches the same texts, for what known patterns have. */
export function nativeSource(node: Node): string {
  switch (node.kind) {
    case "empty":
      return "";
    case "literal":
      return `\\u{${node.codePoint.toString(16)}}`;
    case "set":
      return node.folded === undefined ? sourceOf(node) : foldedLetter(node.folded);
    case "sequence":
      return node.parts.map(nativeSource).join("");
    case "choice":
      return `(?:${node.choices.map(nativeSource).join("|")})`;
    case "capture":
      return `(?:${nativeSource(node.node)})`;
    case "repeat": {
      const { min, max, mode } = node;
      const most = max === Number.POSITIVE_INFINITY ? "" : max;
      return `(?:${nativeSource(node.node)}){${min},${most}}${mode === "lazy" ? "?" : ""}`;
    }
    case "look":
      return `(?${node.behind ? "<" : ""}${node.negated ? "!" : "="}${nativeSource(node.node)})`;
    default:
      throw new PatternError("a known pattern has no such parts");
  }
}
