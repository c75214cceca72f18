import { readFileSync } from "node:fs";
import { brotliDecompressSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { TextStream, Tokenizer } from "../src/index.ts";
import { TokenizerEngine } from "../src/tokenizer/engine.ts";

interface Case {
  text: string;
  ids: number[];
  added?: number[];
  decoded?: string;
  random?: number[];
  randomDecoded?: string;
}

interface File {
  name: string;
  json?: { added_tokens: object[] };
  split?: { pattern: object; behavior: string; invert: boolean };
  cases: Case[];
}

const path = new URL("../../../fixtures/goldens/tokenizers.json.br", import.meta.url);
const { files } = JSON.parse(brotliDecompressSync(readFileSync(path)).toString()) as { files: File[] };
const base = files.find(({ name }) => name === "byte-level after digits and punctuation")?.json as object;
const bytes = { type: "ByteLevel", add_prefix_space: false, use_regex: false };
const jsonOf = ({ json, split }: File) =>
  json ?? { ...base, pre_tokenizer: { type: "Sequence", pretokenizers: [split, bytes] } };

describe("ids and texts are those of Hugging Face tokenizers", () => {
  it.each(files.map((file) => [file.name, file] as const))("%s", async (_, file) => {
    const tokenizer = new Tokenizer({ "tokenizer.json": structuredClone(jsonOf(file)) });
    // The same in slices, which only long texts take otherwise.
    const sliced = new TokenizerEngine("", structuredClone(jsonOf(file)) as Record<string, unknown>, [], 2 ** 30, 0);
    for (const { text, ids, added = ids, decoded, random = [], randomDecoded } of file.cases) {
      expect(tokenizer.encode(text, { specialTokens: "none" }), text).toEqual(ids);
      expect(await tokenizer.encodeAsync(text), text).toEqual(added);
      expect(sliced.encode(text, { adds: false, parses: true }, sliced.workFor("", 2 ** 30)), text).toEqual(ids);
      for (const [given, expected] of [
        [ids, decoded],
        [random, randomDecoded],
      ] as const) {
        if (expected === undefined) continue;
        expect(tokenizer.decode(given)).toBe(expected);
        const stream = new TextStream(tokenizer);
        expect(given.map((id) => stream.push(id)).join("") + stream.end()).toBe(expected);
      }
    }
  });
});
