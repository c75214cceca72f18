import { readOptionalJson } from "./json.ts";
import { specialTokensOf } from "./special_tokens.ts";

type Json = Record<string, unknown>;
const objectOf = (value: unknown): Json => (value !== null && typeof value === "object" ? (value as Json) : {});

/**
 * The id of a checkpoint's `eos_token`, which ends a reply whatever its other files say; undefined if its tokenizer names
 * none, or has no token with that text. Reads less than opening the tokenizer does.
 * @throws MlxtsError `Io` for files that are malformed
 */
export function readEosId(directory: string): number | undefined {
  const config = readOptionalJson(directory, "tokenizer_config.json") ?? {};
  const map = readOptionalJson(directory, "special_tokens_map.json") ?? {};
  const token = specialTokensOf(config).eos_token ?? specialTokensOf(map).eos_token;
  if (token === undefined) return undefined;
  const isEos = (entry: unknown) => objectOf(entry).content === token;
  for (const [id, entry] of Object.entries(objectOf(config.added_tokens_decoder)))
    if (isEos(entry)) return idOf(Number(id));
  const { added_tokens, model } = readOptionalJson(directory, "tokenizer.json") ?? {};
  const added = Array.isArray(added_tokens) ? added_tokens.find(isEos) : undefined;
  if (added !== undefined) return idOf(objectOf(added).id);
  const vocab = objectOf(model).vocab;
  if (Array.isArray(vocab)) return idOf(vocab.findIndex((entry) => Array.isArray(entry) && entry[0] === token));
  return Object.hasOwn(objectOf(vocab), token) ? idOf(objectOf(vocab)[token]) : undefined;
}

const idOf = (id: unknown) => (Number.isInteger(id) && (id as number) >= 0 ? (id as number) : undefined);
