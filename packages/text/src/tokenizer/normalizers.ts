import { toByteCharacters } from "./byte_level.ts";
import { trimmedEnd, WHITESPACE_AT_START } from "./characters.ts";
import { type Matcher, Matches, TextMatcher } from "./matcher.ts";
import { readPrecompiled } from "./precompiled.ts";
import { isObject, type StepFields } from "./step_fields.ts";
import type { Work } from "./work.ts";

/** Changes a text before it is split. */
export type Normalizer = (text: string, work: Work) => string;

/** A text may not be made longer than so many characters, and four times as long: each of many steps may lengthen it. */
export const MAX_CHARACTERS = 2 ** 24;

const inOrder =
  (steps: readonly Normalizer[]): Normalizer =>
  (text, work) => {
    let changed = text;
    for (const step of steps) changed = step(changed, work);
    return changed;
  };

export const TOO_LONG = "would take too much memory with this tokenizer: give it in parts";

/** Puts `content` in the place of each match. */
export function replaceMatches(matcher: Matcher, content: string): Normalizer {
  if (matcher instanceof TextMatcher && matcher.wanted !== "") return replaceText(matcher.wanted, content);
  return (text, work) => {
    const parts: string[] = [];
    let last = 0;
    let length = 0;
    const matches = new Matches(matcher, text, work);
    while (text !== "" && matches.next()) {
      parts.push(text.slice(last, matches.start), content);
      length += matches.start - last + content.length;
      if (length > Math.max(MAX_CHARACTERS, 4 * text.length)) throw work.exceeded(TOO_LONG);
      last = matches.end;
    }
    if (parts.length === 0) return text;
    work.spend(parts.length + length / 16);
    parts.push(text.slice(last));
    return parts.join("");
  };
}

function replaceText(wanted: string, content: string): Normalizer {
  return (text, work) => {
    const parts = text.split(wanted);
    const length = text.length + (parts.length - 1) * (content.length - wanted.length);
    if (length > Math.max(MAX_CHARACTERS, 4 * text.length)) throw work.exceeded(TOO_LONG);
    work.spend(parts.length + length / 16);
    return parts.length === 1 ? text : parts.join(content);
  };
}

/** Characters one by one, as in Rust: a sigma at the end of a word stays σ. */
const lowercase: Normalizer = (text, work) => {
  work.spend(text.length / 4);
  return text.includes("Σ")
    ? text.replace(/Σ+/g, (sigmas) => "σ".repeat(sigmas.length)).toLowerCase()
    : text.toLowerCase();
};

const form =
  (name: "NFC" | "NFD" | "NFKC" | "NFKD"): Normalizer =>
  (text, work) => {
    work.spend(text.length / 4);
    return text.normalize(name);
  };

const replaced =
  (expression: RegExp, by: string): Normalizer =>
  (text, work) => {
    work.spend(text.length / 4);
    return text.replace(expression, by);
  };

const CHINESE =
  /[\u4e00-\u9fff\u3400-\u4dbf\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b920}-\u{2ceaf}\uf900-\ufaff\u{2f800}-\u{2fa1f}]/gu;

function bert(fields: StepFields): Normalizer {
  const lowercases = fields.boolean("lowercase", true);
  const steps: Normalizer[] = [];
  if (fields.boolean("clean_text", true))
    steps.push(replaced(/(?![\t\n\r])[\ufffd\p{Cc}\p{Cf}\p{Co}]/gu, ""), replaced(/\p{White_Space}/gu, " "));
  if (fields.boolean("handle_chinese_chars", true)) steps.push(replaced(CHINESE, " $& "));
  if (fields.boolean("strip_accents", lowercases)) steps.push(form("NFD"), replaced(/\p{Mn}/gu, ""));
  if (lowercases) steps.push(lowercase);
  return inOrder(steps);
}

function strip(left: boolean, right: boolean): Normalizer {
  return (text, work) => {
    const start = left ? (WHITESPACE_AT_START.exec(text)?.[0].length ?? 0) : 0;
    const end = right ? trimmedEnd(text) : text.length;
    work.spend(start + text.length - end);
    return text.slice(start, Math.max(start, end));
  };
}

/** What SentencePiece's rules `nmt` remove, and what they make a space. */
const nmt = inOrder([
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are removed
  replaced(/[\u0001-\u0008\u000b\u000e-\u001f\u007f\u008f\u009f]/g, ""),
  replaced(/[\t\n\f\r\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd]/g, " "),
]);

/** Whether one of the steps of a normalizer that was read removes white space at the beginning. */
export function stripsLeft(json: unknown): boolean {
  if (!isObject(json)) return false;
  if (Array.isArray(json.normalizers)) return json.normalizers.some(stripsLeft);
  return json.type === "Strip" && json.strip_left !== false;
}

export function readNormalizer(fields: StepFields): Normalizer {
  switch (fields.type) {
    case "Sequence":
      return inOrder(fields.steplist("normalizers").map(readNormalizer));
    case "BertNormalizer":
      return bert(fields);
    case "Strip":
      return strip(fields.boolean("strip_left", true), fields.boolean("strip_right", true));
    case "StripAccents":
      return replaced(/\p{M}/gu, "");
    case "NFC":
    case "NFD":
    case "NFKC":
    case "NFKD":
      return form(fields.type);
    case "Lowercase":
      return lowercase;
    case "Nmt":
      return nmt;
    case "Precompiled":
      return readPrecompiled(fields);
    case "Replace":
      return replaceMatches(fields.matcher("pattern"), fields.text("content"));
    case "Prepend": {
      const prefix = fields.text("prepend");
      return (text) => (text === "" ? text : prefix + text);
    }
    case "ByteLevel":
      return (text, work) => {
        work.spend(4 * text.length);
        if (text.length > MAX_CHARACTERS) throw work.exceeded(TOO_LONG);
        return toByteCharacters(text);
      };
    default:
      throw fields.unsupported();
  }
}
