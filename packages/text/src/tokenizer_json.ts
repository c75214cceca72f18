import { MlxtsError } from "@mlxts/common/errors";
import { isObject, type Json, type Refuse, StepChecker } from "./tokenizer_steps.ts";

/** Far above the largest vocabularies, which have about a million tokens. */
const MAX_TOKEN_ID = 2 ** 24 - 1;
const MAX_TOKEN_LENGTH = 1 << 14;
const MAX_AFFIX_LENGTH = 256;

/** What a checked `tokenizer.json` can do to time and memory. */
export interface TokenizerShape {
  /** A text becomes at most so many times as long before it is split into tokens. */
  growth: number;
  /** A decoded text is at most so many times as long as its tokens. */
  decodedGrowth: number;
  /** Characters of the longest token. */
  longestToken: number;
  /** For a unigram vocabulary: the most tokens that begin at one character of a text. */
  overlap: number;
  /** Whether short texts are encoded in little time: by bytes and merges, with none but well-known patterns. */
  encodesShortTextsSoon: boolean;
  /** Whether decoding uses regular expressions of the file. */
  decodesByRegex: boolean;
}

/** A value of the file in a message. */
const brief = (value: unknown) => {
  const text = typeof value === "string" || typeof value === "number" ? (JSON.stringify(value) ?? "") : typeof value;
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
};

/** The tokens of a file and their ids. */
class Vocabulary {
  readonly ids = new Map<string, number>();
  longestToken = 0;
  private readonly tokens = new Map<number, string>();
  private readonly refuse: Refuse;

  constructor(refuse: Refuse) {
    this.refuse = refuse;
  }

  /** `again`: the same token may have the same id already. */
  add(where: string, token: unknown, id: unknown, again: boolean): void {
    const { refuse } = this;
    if (typeof token !== "string" || token.length > MAX_TOKEN_LENGTH)
      throw refuse(where, `have texts of at most ${MAX_TOKEN_LENGTH} characters, got ${brief(token)}`);
    if (!Number.isInteger(id) || (id as number) < 0 || (id as number) > MAX_TOKEN_ID)
      throw refuse(where, `have ids that are integers from 0 to ${MAX_TOKEN_ID}, got ${brief(id)} for ${brief(token)}`);
    const other = this.tokens.get(id as number);
    if (other !== undefined && !(again && other === token))
      throw refuse(where, `give each id once, got ${id} for ${brief(other)} and for ${brief(token)}`);
    const known = this.ids.get(token);
    if (known !== undefined && known !== id)
      throw refuse(where, `give each token one id, got ${known} and ${id} for ${brief(token)}`);
    this.longestToken = Math.max(this.longestToken, token.length);
    this.tokens.set(id as number, token);
    this.ids.set(token, id as number);
  }

  /** The most tokens that are beginnings of one token, itself included. */
  get overlap(): number {
    let most = 0;
    for (const token of this.ids.keys()) {
      let begins = 0;
      for (let end = 1; end <= token.length; end++) if (this.ids.has(token.slice(0, end))) begins++;
      most = Math.max(most, begins);
    }
    return most;
  }
}

function readVocabulary(model: Json, added: unknown, refuse: Refuse): { longestToken: number; overlap: number } {
  const vocabulary = new Vocabulary(refuse);
  const { vocab } = model;
  let overlap = 0;
  if (Array.isArray(vocab)) {
    for (const [id, entry] of vocab.entries()) {
      if (!Array.isArray(entry) || typeof entry[1] !== "number")
        throw refuse("model.vocab", "be pairs of a token and a number");
      vocabulary.add("model.vocab", entry[0], id, false);
    }
    overlap = vocabulary.overlap;
  } else if (isObject(vocab))
    for (const [token, id] of Object.entries(vocab)) vocabulary.add("model.vocab", token, id, false);
  else throw refuse("model.vocab", "be an object of ids, or a list");
  if (!Array.isArray(added ?? [])) throw refuse("added_tokens", "be a list");
  for (const entry of (added ?? []) as unknown[]) {
    if (!isObject(entry) || entry.content === "") throw refuse("added_tokens", "be objects with `content` and `id`");
    vocabulary.add("added_tokens", entry.content, entry.id, true);
  }
  return { longestToken: vocabulary.longestToken, overlap };
}

function checkAffixes(model: Json, refuse: Refuse): void {
  for (const name of [
    "merges",
    "unk_token",
    "end_of_word_suffix",
    "continuing_subword_prefix",
    "continuing_subword_suffix",
  ]) {
    const value = model[name];
    if (typeof value === "string" && value.length > MAX_AFFIX_LENGTH)
      throw refuse(`model.${name}`, `have at most ${MAX_AFFIX_LENGTH} characters`);
  }
}

/**
 * Checks the parts of a `tokenizer.json` that the tokenizer library does not check, and makes its replacements plain
 * texts.
 * @throws MlxtsError `Io` that names the part: ids that are negative, fractional, huge or given twice; steps that would
 *   make a text many times as long, or never end
 */
export function checkTokenizerJson(path: string, json: Json): TokenizerShape {
  const refuse: Refuse = (part, rule) =>
    new MlxtsError("Io", `${path}: \`${part}\` must ${rule}`, { path, operation: "parse" });
  const { model } = json;
  if (!isObject(model)) throw refuse("model", "be an object");
  const { longestToken, overlap } = readVocabulary(model, json.added_tokens, refuse);
  checkAffixes(model, refuse);
  const steps = new StepChecker(refuse);
  let growth = 1;
  for (const name of ["normalizer", "pre_tokenizer", "post_processor"]) growth *= steps.growth(name, json[name]);
  const encodesShortTextsSoon = model.type === "BPE" && steps.slowSteps === 0;
  const { regexes } = steps;
  const decodedGrowth = steps.growth("decoder", json.decoder);
  const decodesByRegex = steps.regexes > regexes;
  return { growth, decodedGrowth, longestToken, overlap, encodesShortTextsSoon, decodesByRegex };
}
