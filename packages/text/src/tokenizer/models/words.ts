import { PrefixTable } from "../prefix_table.ts";
import type { Work } from "../work.ts";
import { type Model, type ModelSource, missingUnknown, modelText, PieceCache } from "./model.ts";

/** Whole pieces are tokens. */
export class WordLevel implements Model {
  private readonly path: string;
  private readonly ids: ReadonlyMap<string, number>;
  private readonly unknown: number | undefined;

  constructor(source: ModelSource) {
    this.path = source.path;
    this.ids = source.vocabulary.ids;
    this.unknown = this.ids.get(modelText(source, "unk_token") ?? "<unk>");
  }

  encode(piece: string, ids: number[], work: Work): void {
    const id = this.ids.get(piece) ?? this.unknown;
    if (id === undefined) throw missingUnknown(this.path);
    ids.push(id);
    work.spend(1);
  }
}

/** The longest token at the beginning of a piece, then the longest with a prefix at the beginning of the rest, and so on. */
export class WordPiece implements Model {
  private readonly path: string;
  private readonly ids: ReadonlyMap<string, number>;
  private readonly tokens: PrefixTable;
  /** The node after the prefix of continuing tokens; −1 if no token has it. */
  private readonly continued: number;
  private readonly unknown: string;
  private readonly mostCharacters: number;
  private readonly pieces = new PieceCache();

  constructor(source: ModelSource) {
    const { path, json, vocabulary, refuse } = source;
    this.path = path;
    this.ids = vocabulary.ids;
    this.tokens = new PrefixTable(vocabulary.characters);
    for (const [token, id] of this.ids) this.tokens.add(token.toWellFormed(), id);
    const prefix = modelText(source, "continuing_subword_prefix") ?? "##";
    let node = 0;
    for (let at = 0; at < prefix.length && node !== -1; at++) node = this.tokens.child(node, prefix.charCodeAt(at));
    this.continued = node;
    this.unknown = modelText(source, "unk_token") ?? "[UNK]";
    const most = json.max_input_chars_per_word ?? 100;
    if (!Number.isInteger(most) || Number(most) < 0)
      throw refuse("model.max_input_chars_per_word", "be an integer ≥ 0");
    this.mostCharacters = Number(most);
  }

  encode(piece: string, ids: number[], work: Work): void {
    const known = this.pieces.get(piece);
    if (known !== undefined) {
      for (const id of known) ids.push(id);
      work.spend(known.length);
      return;
    }
    const begin = ids.length;
    if (!this.split(piece, ids, work)) {
      ids.length = begin;
      const id = this.ids.get(this.unknown);
      if (id === undefined) throw missingUnknown(this.path);
      ids.push(id);
    }
    this.pieces.keep(piece, ids, begin);
  }

  private split(piece: string, ids: number[], work: Work): boolean {
    if (piece.length > this.mostCharacters && [...piece].length > this.mostCharacters) return false;
    const { tokens } = this;
    for (let start = 0; start < piece.length; ) {
      let node = start === 0 ? 0 : this.continued;
      let end = start;
      let id = -1;
      let at = start;
      while (at < piece.length && node !== -1) {
        node = tokens.child(node, piece.charCodeAt(at++));
        if (node === -1 || tokens.value(node) === -1) continue;
        id = tokens.value(node);
        end = at;
      }
      work.spend(2 + at - start);
      if (id === -1) return false;
      ids.push(id);
      start = end;
    }
    return true;
  }
}
