// What reads files, for Node.js; `@mlxts/text` itself runs in a browser too.
export { checkDirectory } from "./directory.ts";
export { readEosId } from "./eos_token.ts";
export { readJson, readOptionalJson } from "./json.ts";
export { readTokenizerFiles, Tokenizer } from "./node_tokenizer.ts";
