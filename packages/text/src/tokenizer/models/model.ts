import { MlxtsError } from "@mlxts/common/errors";
import type { Json, Refuse } from "../step_fields.ts";
import type { Vocabulary } from "../vocabulary.ts";
import type { Work } from "../work.ts";

/** Gives the tokens of pieces of a text. */
export interface Model {
  /** Appends the ids of a piece, which is not empty. */
  encode(piece: string, ids: number[], work: Work): void;
  /** The same for a long piece, with pauses in which other pieces may be encoded. */
  encodeInSlices?(piece: string, ids: number[], work: Work): Generator<void>;
}

/** What a model is made of. */
export interface ModelSource {
  path: string;
  json: Json;
  vocabulary: Vocabulary;
  /** Scores of a Unigram vocabulary. */
  scores: readonly number[] | undefined;
  refuse: Refuse;
  /** Whether pieces are texts whose bytes, as characters, are in the vocabulary. */
  takesBytes: boolean;
}

const MAX_AFFIX_LENGTH = 256;

/** A text of the model, undefined without it. */
export function modelText({ json, refuse }: ModelSource, name: string): string | undefined {
  const value = json[name] ?? undefined;
  if (value === undefined) return undefined;
  if (typeof value !== "string" || value.length > MAX_AFFIX_LENGTH)
    throw refuse(`model.${name}`, `be a text of at most ${MAX_AFFIX_LENGTH} characters`);
  return value;
}

export function modelFlag({ json, refuse }: ModelSource, name: string): boolean {
  const value = json[name] ?? false;
  if (typeof value !== "boolean") throw refuse(`model.${name}`, "be true or false");
  return value;
}

/** The token for unknown text is needed, and the vocabulary has none. */
export function missingUnknown(path: string): MlxtsError {
  return new MlxtsError(
    "Io",
    `${path}: the vocabulary has no token for a part of the text, and none for unknown text`,
    {
      path,
    },
  );
}

/** Ids of pieces that come again and again. When it is full it begins anew. */
export class PieceCache {
  private readonly found = new Map<string, readonly number[]>();
  private static readonly MAX_PIECES = 1 << 16;
  private static readonly MAX_LENGTH = 64;

  get(piece: string): readonly number[] | undefined {
    return this.found.get(piece);
  }

  /** Keeps the ids from `begin` on. */
  keep(piece: string, ids: readonly number[], begin: number): void {
    if (piece.length > PieceCache.MAX_LENGTH) return;
    if (this.found.size >= PieceCache.MAX_PIECES) this.found.clear();
    // A longer slice keeps the whole text that it is of in memory.
    const key = piece.length < 13 ? piece : [...piece].join("");
    this.found.set(key, ids.slice(begin));
  }
}
