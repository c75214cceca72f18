import { isObject, type Json, type Refuse } from "./step_fields.ts";

/** Far above the largest vocabularies, which have about a million tokens. */
const MAX_TOKEN_ID = 2 ** 24 - 1;
const MAX_TOKEN_LENGTH = 1 << 14;

/** A value of the file in a message. */
const brief = (value: unknown) => {
  const text = typeof value === "string" || typeof value === "number" ? (JSON.stringify(value) ?? "") : typeof value;
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
};

/** The tokens of a file and their ids. */
export class Vocabulary {
  /** Tokens of the model. */
  readonly ids = new Map<string, number>();
  longestToken = 0;
  /** Characters of all tokens. */
  characters = 0;
  private readonly tokens: string[] = [];
  private readonly far = new Map<number, string>();
  private readonly added = new Map<string, number>();
  private readonly refuse: Refuse;

  constructor(refuse: Refuse) {
    this.refuse = refuse;
  }

  addModel(token: string, id: number): void {
    this.check("model.vocab", token, id, this.token(id), this.ids.get(token));
    this.ids.set(token, id);
    this.set(token, id);
  }

  /** An added token, which may be one of the model. */
  addAdded(token: string, id: number): void {
    const other = this.token(id);
    this.check(
      "added_tokens",
      token,
      id,
      other === token ? undefined : other,
      this.added.get(token) ?? this.ids.get(token),
    );
    this.added.set(token, id);
    this.set(token, id);
  }

  token(id: number): string | undefined {
    return this.tokens[id] ?? this.far.get(id);
  }

  private check(where: string, token: string, id: number, other: string | undefined, known: number | undefined): void {
    const { refuse } = this;
    if (typeof token !== "string" || token.length > MAX_TOKEN_LENGTH)
      throw refuse(where, `have texts of at most ${MAX_TOKEN_LENGTH} characters, got ${brief(token)}`);
    if (!Number.isInteger(id) || id < 0 || id > MAX_TOKEN_ID)
      throw refuse(where, `have ids that are integers from 0 to ${MAX_TOKEN_ID}, got ${brief(id)} for ${brief(token)}`);
    if (other !== undefined)
      throw refuse(where, `give each id once, got ${id} for ${brief(other)} and for ${brief(token)}`);
    if (known !== undefined && known !== id)
      throw refuse(where, `give each token one id, got ${known} and ${id} for ${brief(token)}`);
  }

  private set(token: string, id: number): void {
    this.longestToken = Math.max(this.longestToken, token.length);
    this.characters += token.length;
    // Ids come in order, most of them: gaps would make the array a slow one.
    if (id <= this.tokens.length + 1024) this.tokens[id] = token;
    else this.far.set(id, token);
  }
}

/** Reads the tokens of `model.vocab`: an object of ids, or pairs of a token and its score, which are returned. */
export function readModelVocabulary(model: Json, vocabulary: Vocabulary, refuse: Refuse): number[] | undefined {
  const { vocab } = model;
  if (Array.isArray(vocab)) {
    const scores: number[] = [];
    for (const [id, entry] of vocab.entries()) {
      if (!Array.isArray(entry) || typeof entry[1] !== "number")
        throw refuse("model.vocab", "be pairs of a token and a number");
      vocabulary.addModel(entry[0] as string, id);
      scores.push(entry[1]);
    }
    return scores;
  }
  if (!isObject(vocab)) throw refuse("model.vocab", "be an object of ids, or a list");
  for (const token in vocab) vocabulary.addModel(token, vocab[token] as number);
  return undefined;
}
