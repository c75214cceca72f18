import { BYTE_CHARACTERS, toByteCharacters, utf8Of } from "../byte_level.ts";
import type { Work } from "../work.ts";
import { MergeQueue } from "./merge_queue.ts";
import { Merges } from "./merges.ts";
import { type Model, type ModelSource, missingUnknown, modelFlag, modelText, PieceCache } from "./model.ts";
import { Seams } from "./seams.ts";

/** Longer pieces are cut at seams first. */
const LONG_PIECE = 32;
/** Longer parts are merged with pauses. */
const LONG_PART = 4096;
const PARTS_IN_A_SLICE = 1024;

/** Byte pair encoding: characters, merged again and again. */
export class Bpe implements Model {
  private readonly path: string;
  private readonly ids: ReadonlyMap<string, number>;
  private readonly longestToken: number;
  private readonly unknown: string | undefined;
  private readonly prefix: string;
  private readonly suffix: string;
  private readonly fusesUnknown: boolean;
  private readonly byteFallback: boolean;
  private readonly ignoresMerges: boolean;
  /** The id of each byte's character, −1 without one, when pieces are taken by their bytes. */
  private readonly byteIds: Int32Array | undefined;
  private readonly takesBytes: boolean;
  private readonly merges: Merges;
  private readonly queue: MergeQueue;
  /** Ids of pieces, and of parts between seams. */
  private readonly pieces = new PieceCache();
  private readonly parts = new PieceCache();
  private seams: Seams | undefined;
  private fallbackIds: readonly (number | undefined)[] | undefined;

  constructor(source: ModelSource) {
    const { path, json, vocabulary, refuse } = source;
    if (typeof json.dropout === "number" && json.dropout > 0)
      throw refuse("model.dropout", "be 0 or null: ids would be random");
    this.path = path;
    this.ids = vocabulary.ids;
    this.longestToken = vocabulary.longestToken;
    this.unknown = modelText(source, "unk_token");
    this.prefix = modelText(source, "continuing_subword_prefix") ?? "";
    this.suffix = modelText(source, "end_of_word_suffix") ?? "";
    this.fusesUnknown = modelFlag(source, "fuse_unk");
    this.byteFallback = modelFlag(source, "byte_fallback");
    this.ignoresMerges = modelFlag(source, "ignore_merges");
    this.merges = new Merges(source);
    this.queue = new MergeQueue(this.merges);
    const simple = this.prefix === "" && this.suffix === "" && !this.byteFallback && this.unknown === undefined;
    if (source.takesBytes && simple)
      this.byteIds = Int32Array.from(BYTE_CHARACTERS, (character) => this.ids.get(character) ?? -1);
    this.takesBytes = source.takesBytes;
  }

  encode(piece: string, ids: number[], work: Work): void {
    const known = this.pieces.get(piece);
    if (known !== undefined) {
      for (const id of known) ids.push(id);
      work.spend(known.length);
      return;
    }
    const begin = ids.length;
    if (this.byteIds !== undefined) this.encodeBytes(piece, this.byteIds, ids, work);
    else this.encodeCharacters(this.takesBytes ? toByteCharacters(piece) : piece, ids, work);
    this.pieces.keep(piece, ids, begin);
  }

  *encodeInSlices(piece: string, ids: number[], work: Work): Generator<void> {
    const { byteIds } = this;
    const text = byteIds === undefined && this.takesBytes ? toByteCharacters(piece) : piece;
    if (byteIds === undefined && this.prefix === "" && this.suffix === "") {
      if (!this.pushWhole(text, ids)) yield* this.encodeParts(text, ids, work);
      return;
    }
    const queue = new MergeQueue(this.merges);
    if (byteIds !== undefined) this.pushBytes(piece, byteIds, queue);
    else this.pushCharacters(text, queue);
    yield* queue.runInSlices(ids, work);
  }

  /** The piece as one token, if merges are ignored for it. */
  private pushWhole(piece: string, ids: number[]): boolean {
    if (!this.ignoresMerges || piece.length > this.longestToken) return false;
    const id = this.ids.get(piece);
    if (id === undefined) return false;
    ids.push(id);
    return true;
  }

  private encodeBytes(piece: string, byteIds: Int32Array, ids: number[], work: Work): void {
    if (this.ignoresMerges && piece.length <= this.longestToken && this.pushWhole(toByteCharacters(piece), ids)) return;
    this.queue.clear();
    this.pushBytes(piece, byteIds, this.queue);
    this.queue.run(ids, work);
  }

  private pushBytes(piece: string, byteIds: Int32Array, queue: MergeQueue): void {
    for (const byte of utf8Of(piece)) {
      const id = byteIds[byte] as number;
      if (id !== -1) queue.push(id);
    }
  }

  private encodeCharacters(piece: string, ids: number[], work: Work): void {
    if (this.pushWhole(piece, ids)) return;
    if (piece.length <= LONG_PIECE || this.prefix !== "" || this.suffix !== "") this.merge(piece, ids, work);
    else for (const _ of this.encodeParts(piece, ids, work));
  }

  /** Cuts a long piece where no merge goes across, between two characters that are tokens. */
  private *encodeParts(piece: string, ids: number[], work: Work): Generator<void> {
    this.seams ??= new Seams(this.ids.keys());
    const { seams } = this;
    let begin = 0;
    let count = 0;
    for (let at = 1; at < piece.length; at++) {
      const right = piece.charCodeAt(at);
      if (!seams.between(piece.charCodeAt(at - 1), right) || (right >= 0xdc00 && right < 0xe000)) continue;
      if (!this.isToken(piece, at - 1) || !this.isToken(piece, at)) continue;
      yield* this.encodePart(piece.slice(begin, at), ids, work);
      begin = at;
      if (++count % PARTS_IN_A_SLICE === 0) yield;
    }
    yield* this.encodePart(piece.slice(begin), ids, work);
    work.spend(piece.length);
  }

  /** Whether the character at a place is a token. */
  private isToken(piece: string, at: number): boolean {
    const unit = piece.charCodeAt(at);
    if (unit < 0xd800 || unit >= 0xe000) return this.ids.has(piece[at] as string);
    const start = unit < 0xdc00 ? at : at - 1;
    return this.ids.has(piece.slice(start, start + 2));
  }

  private encodePart(part: string, ids: number[], work: Work): Iterable<void> {
    const known = this.parts.get(part);
    if (known !== undefined) {
      for (const id of known) ids.push(id);
      work.spend(known.length);
      return [];
    }
    if (part.length > LONG_PART) {
      const queue = new MergeQueue(this.merges);
      this.pushCharacters(part, queue);
      return queue.runInSlices(ids, work);
    }
    const begin = ids.length;
    this.merge(part, ids, work);
    this.parts.keep(part, ids, begin);
    return [];
  }

  private merge(piece: string, ids: number[], work: Work): void {
    this.queue.clear();
    this.pushCharacters(piece, this.queue);
    this.queue.run(ids, work);
  }

  private pushCharacters(piece: string, queue: MergeQueue): void {
    const { prefix, suffix, fusesUnknown } = this;
    let pending: number | undefined;
    let at = 0;
    for (const char of piece) {
      const isFirst = at === 0;
      at += char.length;
      let symbol = isFirst ? char : prefix + char;
      if (at === piece.length) symbol += suffix;
      const id = this.ids.get(symbol);
      if (id !== undefined) {
        if (pending !== undefined) queue.push(pending);
        pending = undefined;
        queue.push(id);
        continue;
      }
      if (this.byteFallback && this.pushFallback(symbol, queue)) continue;
      if (this.unknown === undefined) continue;
      if (pending !== undefined && fusesUnknown) continue;
      if (pending !== undefined) queue.push(pending);
      pending = this.ids.get(this.unknown);
      if (pending === undefined) throw missingUnknown(this.path);
    }
    if (pending !== undefined) queue.push(pending);
  }

  /** Pushes the tokens `<0x00>` of a symbol's bytes, if all of them are in the vocabulary. */
  private pushFallback(symbol: string, queue: MergeQueue): boolean {
    this.fallbackIds ??= Array.from({ length: 256 }, (_, byte) =>
      this.ids.get(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`),
    );
    const { fallbackIds } = this;
    const bytes = utf8Of(symbol);
    if (bytes.some((byte) => fallbackIds[byte] === undefined)) return false;
    for (const byte of bytes) queue.push(fallbackIds[byte] as number);
    return true;
  }
}
