import { utf8Of } from "../byte_level.ts";
import { PrefixTable } from "../prefix_table.ts";
import type { Work } from "../work.ts";
import { type Model, type ModelSource, missingUnknown, modelFlag, PieceCache } from "./model.ts";

/** How much less than the least likely token unknown text is worth. */
const UNKNOWN_PENALTY = 10;

/** The likeliest way to write a piece as tokens (Viterbi's algorithm). */
export class Unigram implements Model {
  private readonly path: string;
  private readonly ids: ReadonlyMap<string, number>;
  private readonly scores: Float64Array;
  private readonly tokens: PrefixTable;
  private readonly unknownScore: number;
  private readonly unknown: number | undefined;
  private readonly byteIds: readonly (number | undefined)[] | undefined;
  private readonly pieces = new PieceCache();
  private best = new Float64Array(64);
  private starts = new Int32Array(64);
  private found = new Int32Array(64);

  constructor(source: ModelSource) {
    const { path, json, vocabulary, scores, refuse } = source;
    if (scores === undefined) throw refuse("model.vocab", "be a list of pairs");
    this.path = path;
    this.ids = vocabulary.ids;
    this.scores = Float64Array.from(scores);
    let least = Number.POSITIVE_INFINITY;
    for (const score of scores) least = Math.min(least, score);
    this.unknownScore = least - UNKNOWN_PENALTY;
    const unknown = json.unk_id ?? undefined;
    if (
      unknown !== undefined &&
      !(Number.isInteger(unknown) && Number(unknown) >= 0 && Number(unknown) < scores.length)
    )
      throw refuse("model.unk_id", "be an id of the vocabulary");
    this.unknown = unknown as number | undefined;
    this.tokens = new PrefixTable(vocabulary.characters);
    for (const [token, id] of this.ids) this.tokens.add(token.toWellFormed(), id);
    if (modelFlag(source, "byte_fallback"))
      this.byteIds = Array.from({ length: 256 }, (_, byte) =>
        this.ids.get(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`),
      );
  }

  encode(piece: string, ids: number[], work: Work): void {
    const known = this.pieces.get(piece);
    if (known !== undefined) {
      for (const id of known) ids.push(id);
      work.spend(known.length);
      return;
    }
    const begin = ids.length;
    this.search(piece, work);
    this.collect(piece, ids);
    this.pieces.keep(piece, ids, begin);
  }

  private search(piece: string, work: Work): void {
    const { length } = piece;
    if (this.best.length <= length) {
      this.best = new Float64Array(2 * length);
      this.starts = new Int32Array(2 * length);
      this.found = new Int32Array(2 * length);
    }
    const { best, starts, found, tokens, scores, unknown } = this;
    best[0] = 0;
    starts.fill(-1, 0, length + 1);
    const reach = (end: number, start: number, score: number, id: number) => {
      if (starts[end] !== -1 && score <= (best[end] as number)) return;
      best[end] = score;
      starts[end] = start;
      found[end] = id;
    };
    for (let start = 0; start < length; ) {
      const here = best[start] as number;
      const width = (piece.codePointAt(start) as number) > 0xffff ? 2 : 1;
      let hasSingle = false;
      let node = 0;
      let at = start;
      while (at < length) {
        node = tokens.child(node, piece.charCodeAt(at++));
        if (node === -1) break;
        const id = tokens.value(node);
        if (id === -1) continue;
        reach(at, start, (scores[id] as number) + here, id);
        if (at - start === width) hasSingle = true;
      }
      work.spend(2 + at - start);
      if (!hasSingle) {
        if (unknown === undefined) throw missingUnknown(this.path);
        reach(start + width, start, this.unknownScore + here, unknown);
      }
      start += width;
    }
  }

  /** Appends the ids of the best way; neighboring unknown characters are one unknown text. */
  private collect(piece: string, ids: number[]): void {
    const { starts, found, unknown } = this;
    const way: number[] = [];
    let end = piece.length;
    while (end > 0) {
      const id = found[end] as number;
      let start = starts[end] as number;
      if (id === unknown) {
        while (start > 0 && found[start] === unknown) start = starts[start] as number;
        this.pushUnknown(piece.slice(start, end), unknown, way);
      } else way.push(id);
      end = start;
    }
    for (let at = way.length - 1; at >= 0; at--) ids.push(way[at] as number);
  }

  /** Pushes the ids of a text that no token was found for, last first. */
  private pushUnknown(text: string, unknown: number, way: number[]): void {
    const id = this.ids.get(text);
    const { byteIds } = this;
    if (id === undefined && byteIds !== undefined) {
      const bytes = utf8Of(text);
      if (bytes.every((byte) => byteIds[byte] !== undefined)) {
        for (let at = bytes.length - 1; at >= 0; at--) way.push(byteIds[bytes[at] as number] as number);
        return;
      }
    }
    way.push(id ?? unknown);
  }
}
