import { MlxtsError } from "@mlxts/core";

/** Far above the largest vocabularies, which have about a million tokens. */
const MAX_TOKEN_ID = 2 ** 24 - 1;
const MAX_TOKEN_LENGTH = 1 << 14;
const MAX_STEPS = 256;
const MAX_PATTERN_LENGTH = 1 << 14;

/** How Qwen, Llama 3 and GPT-2 cut texts: patterns whose time is in proportion to the text. */
const LINEAR_PATTERNS: ReadonlySet<unknown> = new Set([
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
]);

/** Steps whose time is in proportion to the text, unless by a pattern of their own. */
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

/** What a checked `tokenizer.json` can do to time and memory. */
export interface TokenizerShape {
  /** A text becomes at most so many times as long before it is cut into tokens. */
  growth: number;
  /** A decoded text is at most so many times as long as its tokens. */
  decodedGrowth: number;
  /** Characters of the longest token. */
  longestToken: number;
  /** For a unigram vocabulary: the most tokens that begin at one character of a text. */
  overlap: number;
  /** Short texts are encoded in little time: by bytes and merges, and by none but well-known patterns. */
  encodesShortTextsSoon: boolean;
  /** Decoding uses regular expressions of the file. */
  decodesByRegex: boolean;
}

type Json = Record<string, unknown>;
const isObject = (value: unknown): value is Json =>
  value !== null && typeof value === "object" && !Array.isArray(value);

/** A value of the file in a message. */
const brief = (value: unknown) => {
  const text = typeof value === "string" || typeof value === "number" ? (JSON.stringify(value) ?? "") : typeof value;
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
};

/**
 * Checks the parts of a `tokenizer.json` that the tokenizer library takes on trust, and makes replacements plain texts.
 * @throws MlxtsError `Io` that names the part: ids that are negative, fractional, huge or given twice; steps that would
 *   make a text many times as long, or never end
 */
export function checkTokenizerJson(path: string, json: Json): TokenizerShape {
  const refuse = (what: string, rule: string): MlxtsError =>
    new MlxtsError("Io", `${path}: \`${what}\` must ${rule}`, { path, operation: "parse" });
  const { model, added_tokens: added } = json;
  if (!isObject(model)) throw refuse("model", "be an object");
  const tokens = new Map<number, string>();
  const ids = new Map<string, number>();
  let longestToken = 0;
  const add = (where: string, token: unknown, id: unknown, again: boolean) => {
    if (typeof token !== "string" || token.length > MAX_TOKEN_LENGTH)
      throw refuse(where, `have texts of at most ${MAX_TOKEN_LENGTH} characters, got ${brief(token)}`);
    if (!Number.isInteger(id) || (id as number) < 0 || (id as number) > MAX_TOKEN_ID)
      throw refuse(where, `have ids that are integers from 0 to ${MAX_TOKEN_ID}, got ${brief(id)} for ${brief(token)}`);
    const other = tokens.get(id as number);
    if (other !== undefined && !(again && other === token))
      throw refuse(where, `give each id once, got ${id} for ${brief(other)} and for ${brief(token)}`);
    const known = ids.get(token);
    if (known !== undefined && known !== id)
      throw refuse(where, `give each token one id, got ${known} and ${id} for ${brief(token)}`);
    longestToken = Math.max(longestToken, token.length);
    tokens.set(id as number, token);
    ids.set(token, id as number);
  };
  const { vocab } = model;
  let overlap = 0;
  if (Array.isArray(vocab)) {
    for (const [id, entry] of vocab.entries()) {
      if (!Array.isArray(entry) || typeof entry[1] !== "number")
        throw refuse("model.vocab", "be pairs of a token and a number");
      add("model.vocab", entry[0], id, false);
    }
    for (const token of ids.keys()) {
      let begins = 0;
      for (let end = 1; end <= token.length; end++) if (ids.has(token.slice(0, end))) begins++;
      overlap = Math.max(overlap, begins);
    }
  } else if (isObject(vocab)) for (const [token, id] of Object.entries(vocab)) add("model.vocab", token, id, false);
  else throw refuse("model.vocab", "be an object of ids, or a list");
  for (const name of [
    "merges",
    "unk_token",
    "end_of_word_suffix",
    "continuing_subword_prefix",
    "continuing_subword_suffix",
  ]) {
    const value = model[name];
    if (typeof value === "string" && value.length > 256) throw refuse(`model.${name}`, "have at most 256 characters");
  }
  if (!Array.isArray(added ?? [])) throw refuse("added_tokens", "be a list");
  for (const entry of (added ?? []) as unknown[]) {
    if (!isObject(entry) || entry.content === "") throw refuse("added_tokens", "be objects with `content` and `id`");
    add("added_tokens", entry.content, entry.id, true);
  }

  let steps = 0;
  let regexes = 0;
  let stepsOfUnknownTime = 0;
  /** How much longer a step makes a text, after steps of the types that were `seen`. */
  const grow = (where: string, step: unknown, seen: Set<string>, depth = 0): number => {
    if (step === null || step === undefined) return 1;
    if (!isObject(step)) throw refuse(where, "be an object");
    if (++steps > MAX_STEPS || depth > 8) throw refuse(where, `have at most ${MAX_STEPS} steps, 8 deep`);
    const type = String(step.type);
    const text = (name: string): number => {
      const value = step[name] ?? "";
      if (typeof value !== "string" || value.length > MAX_PATTERN_LENGTH)
        throw refuse(`${where}.${name}`, `be a text of at most ${MAX_PATTERN_LENGTH} characters`);
      return value.length;
    };
    const pattern = isObject(step.pattern) ? step.pattern : {};
    for (const value of Object.values(pattern))
      if (typeof value !== "string" || value.length > MAX_PATTERN_LENGTH)
        throw refuse(`${where}.pattern`, `be a text of at most ${MAX_PATTERN_LENGTH} characters`);
    if (!LINEAR_STEPS.has(type) || (pattern.Regex !== undefined && !LINEAR_PATTERNS.has(pattern.Regex)))
      stepsOfUnknownTime++;
    if (typeof pattern.Regex === "string") regexes++;
    else if ((type === "Split" || type === "Replace") && typeof pattern.String !== "string")
      throw refuse(`${where}.pattern`, "have a `Regex` or a `String`");
    const parts = ["normalizers", "pretokenizers", "decoders", "processors"].flatMap((name) => {
      const list = step[name] ?? [];
      if (!Array.isArray(list)) throw refuse(`${where}.${name}`, "be a list");
      return list as unknown[];
    });
    let factor = parts.reduce<number>((product, part) => product * grow(where, part, seen, depth + 1), 1);
    if (type === "Replace") {
      const least = typeof pattern.String === "string" ? pattern.String.length : 0;
      const content = text("content");
      factor *= content === 0 ? 1 : least > 0 ? Math.max(1, content / least) : content + 1;
      // Texts, as in the library that defines the format; JavaScript would put parts of the input for `$` signs.
      if (content > 0) step.content = (step.content as string).replaceAll("$", "$$$$");
    } else if (
      type === "Split" &&
      typeof pattern.Regex === "string" &&
      String(step.behavior).toLowerCase() === "removed"
    ) {
      // What groups match comes between the pieces.
      factor *= pattern.Regex.split("(").length;
    } else if (type === "Prepend") factor *= 1 + text("prepend") / 16;
    else if (type === "Metaspace" && `${step.replacement}${step.str_rep}`.includes("$"))
      throw refuse(`${where}.replacement`, "be a text without `$`");
    else if (type === "Metaspace") factor *= Math.max(1, text("replacement"), text("str_rep")) + 1;
    else if (type === "ByteLevel") factor *= step.add_prefix_space === true || seen.has(type) ? 3 : 1;
    else if (type === "BertNormalizer") factor *= 3;
    else if (type === "FixedLength" && !(Number.isInteger(step.length) && (step.length as number) >= 1))
      throw refuse(`${where}.length`, "be an integer ≥ 1");
    else if (type === "TemplateProcessing") {
      const list = step.single ?? [];
      if (!Array.isArray(list) || list.length > MAX_STEPS)
        throw refuse(`${where}.single`, `be a list of at most ${MAX_STEPS}`);
      factor *= Math.max(1, list.filter((item) => isObject(item) && "Sequence" in item).length);
    }
    seen.add(type);
    if (factor > 1e6) throw refuse(where, "not make texts a million times as long");
    return factor;
  };
  const growth = ["normalizer", "pre_tokenizer", "post_processor"].reduce(
    (product, name) => product * grow(name, json[name], new Set()),
    1,
  );
  const encodesShortTextsSoon = model.type === "BPE" && stepsOfUnknownTime === 0;
  regexes = 0;
  const decodedGrowth = grow("decoder", json.decoder, new Set());
  return { growth, decodedGrowth, longestToken, overlap, encodesShortTextsSoon, decodesByRegex: regexes > 0 };
}
