import { Bpe } from "./bpe.ts";
import type { Model, ModelSource } from "./model.ts";
import { Unigram } from "./unigram.ts";
import { WordLevel, WordPiece } from "./words.ts";

/** The kind of a model; older files do not name it. */
function kindOf({ json, refuse, scores }: ModelSource): string {
  if (typeof json.type === "string") return json.type;
  if (json.type !== undefined && json.type !== null) throw refuse("model.type", "be a text");
  if ("merges" in json) return "BPE";
  if (scores !== undefined) return "Unigram";
  if ("max_input_chars_per_word" in json) return "WordPiece";
  if ("unk_token" in json) return "WordLevel";
  throw refuse("model.type", "be a type that is supported");
}

export function readModel(source: ModelSource): Model {
  const kind = kindOf(source);
  switch (kind) {
    case "BPE":
      return new Bpe(source);
    case "Unigram":
      return new Unigram(source);
    case "WordLevel":
      return new WordLevel(source);
    case "WordPiece":
      return new WordPiece(source);
    default:
      throw source.refuse("model.type", `be a type that is supported, got ${JSON.stringify(kind.slice(0, 40))}`);
  }
}
