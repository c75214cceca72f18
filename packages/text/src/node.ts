// What reads files, for Node.js; `@mlxts/text` itself runs in a browser too.
export { checkDirectory } from "./directory.ts";
export { readJson, readOptionalJson } from "./json.ts";
export { readTokenizerFiles, Tokenizer } from "./node_tokenizer.ts";
