import { join } from "node:path";
import { MAX_TEMPLATE_BYTES } from "./chat_template.ts";
import { checkDirectory } from "./directory.ts";
import { readJson, readOptionalJson, readText, unlessMissing } from "./json.ts";
import { type TokenizerFiles, Tokenizer as TokenizerOfFiles, type TokenizerOptions } from "./tokenizer.ts";

/**
 * Reads the files of a checkpoint's directory that a tokenizer is made of.
 * @throws MlxtsError `Io` for a directory without `tokenizer.json`, and files that are too large or malformed
 */
export function readTokenizerFiles(directory: string): TokenizerFiles {
  checkDirectory("Tokenizer", directory, "tokenizer.json");
  return {
    "tokenizer.json": readJson(join(directory, "tokenizer.json")),
    "tokenizer_config.json": readOptionalJson(directory, "tokenizer_config.json"),
    "special_tokens_map.json": readOptionalJson(directory, "special_tokens_map.json"),
    "chat_template.jinja": unlessMissing(() => readText(join(directory, "chat_template.jinja"), MAX_TEMPLATE_BYTES)),
    "chat_template.json": readOptionalJson(directory, "chat_template.json"),
  };
}

/**
 * The tokenizer of a checkpoint's directory (`tokenizer.json`) and its chat templates. The files are not trusted: their
 * regular expressions and templates run with limits on time and memory.
 */
export class Tokenizer extends TokenizerOfFiles {
  /**
   * @throws MlxtsError `Io` for files that are missing, malformed or give token ids that are negative, fractional, huge
   *   or taken twice; `ChatTemplate` for a field `chat_template` that is no template; `LimitExceeded`
   */
  constructor(directory: string, options: TokenizerOptions = {}) {
    super(readTokenizerFiles(directory), options, directory);
  }
}
