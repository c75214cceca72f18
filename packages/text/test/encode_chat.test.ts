import { readFileSync } from "node:fs";
import { brotliDecompressSync } from "node:zlib";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type ChatMessage, Tokenizer } from "../src/index.ts";

const goldens = (name: string) => readFileSync(new URL(`../../../fixtures/goldens/${name}`, import.meta.url));
const { files } = JSON.parse(brotliDecompressSync(goldens("tokenizers.json.br")).toString()) as {
  files: { name: string; json: object }[];
};
const { chats } = JSON.parse(goldens("chats.json").toString()) as {
  chats: {
    file: string;
    template: string;
    messages: ChatMessage[];
    add_generation_prompt: boolean;
    ids: number[];
  }[];
};

const open = (file: string, template: string) =>
  new Tokenizer({
    "tokenizer.json": structuredClone(files.find(({ name }) => name === file)?.json as object),
    "tokenizer_config.json": { bos_token: "<s>", eos_token: "</s>" },
    "chat_template.jinja": template,
  });

describe("encodeChat", () => {
  it("gives the ids of transformers' apply_chat_template", () => {
    expect(chats.length).toBeGreaterThan(30);
    for (const { file, template, messages, add_generation_prompt, ids } of chats)
      expect(open(file, template).encodeChat(messages, { add_generation_prompt }), JSON.stringify(messages)).toEqual(
        ids,
      );
  });

  it("has no second BOS, where encode of the same text has one", () => {
    const tokenizer = open("SentencePiece BPE, Llama 2", "{{ bos_token }}{{ messages[0].content }}");
    const messages = [{ role: "user", content: "hi" }];
    expect(tokenizer.encodeChat(messages).filter((id) => id === 1)).toHaveLength(1);
    expect(tokenizer.encode(tokenizer.chat(messages)).filter((id) => id === 1)).toHaveLength(2);
  });

  const CONTROLS = ["<|im_start|>", "<|im_end|>", "<s>", "</s>", "<n>"];
  const template =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.content is string %}{{ m.content | trim }}{% else %}" +
    "{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}{{ m.calls | tojson if m.calls }}{{ '<|im_end|>' }}{% endfor %}";
  const tokenizer = open("byte-level, Qwen", template);
  const controls = CONTROLS.map((token) => tokenizer.idOf(token)).filter((id) => id !== undefined);

  const piece = fc.constantFrom(
    ...CONTROLS,
    "<|im_",
    "end|>",
    "<",
    "<<",
    "|",
    "s>",
    " ",
    "\n",
    "a",
    "\ufdd0",
    "\\ufdd0",
    "é",
  );
  const words = fc.array(piece, { maxLength: 8 }).map((pieces) => pieces.join(""));
  const content = fc.oneof(words, fc.array(fc.record({ text: words }), { maxLength: 5 }));

  it("makes no control token of a message, and loses none of its text", () => {
    fc.assert(
      fc.property(
        fc.array(content, { minLength: 1, maxLength: 4 }),
        fc.dictionary(words, words, { maxKeys: 2 }),
        (contents, calls) => {
          const messages = contents.map((given) => ({ role: "user", content: given as string, calls }));
          const before = JSON.stringify(messages);
          const ids = tokenizer.encodeChat(messages);
          const found = ids.filter((id) => controls.includes(id));
          const expected = messages.flatMap(() => ["<|im_start|>", "<|im_end|>"].map((token) => tokenizer.idOf(token)));
          expect(found).toEqual(expected);
          expect(tokenizer.decode(ids, { skipSpecialTokens: false })).toBe(tokenizer.chat(messages));
          expect(JSON.stringify(messages)).toBe(before);
        },
      ),
      { numRuns: 2000, seed: 3 },
    );
  });

  it("makes them if it is asked to, and then gives the ids of the rendered text", () => {
    const messages = [{ role: "user", content: "a<|im_end|>b" }];
    const ids = tokenizer.encodeChat(messages, {}, { parse: true });
    expect(ids).toEqual(tokenizer.encode(tokenizer.chat(messages), { specialTokens: "none" }));
    expect(ids.filter((id) => id === tokenizer.idOf("<|im_end|>"))).toHaveLength(2);
  });

  it("leaves reasoning at the beginning of an assistant's message to the template, not in others", () => {
    const splits = open(
      "byte-level, Qwen",
      "{% for m in messages %}{{ m.content.split('</think>') | length }}{% endfor %}</think><think>",
    );
    const of = (role: string, text: string) => splits.decode(splits.encodeChat([{ role, content: text }]));
    expect(of("assistant", "<think>a</think>b</think>")).toMatch(/^[23]/);
    expect(of("assistant", "a</think>b")).toMatch(/^2/);
  });
});

describe("encode", () => {
  const tokenizer = open("byte-level, Qwen", "");

  it("makes no control tokens of a text with parse: false", () => {
    const end = tokenizer.idOf("<|im_end|>") as number;
    const text = "hi<|im_end|>\n<tok>";
    expect(tokenizer.encode(text)).toContain(end);
    const ids = tokenizer.encode(text, { parse: false });
    expect(ids).not.toContain(end);
    // A token that is no control token stays one.
    expect(ids).toContain(tokenizer.idOf("<tok>"));
    expect(tokenizer.decode(ids)).toBe(text);
    expect(() => tokenizer.encode("a", { specialTokens: "all" as never })).toThrow(
      'tokenizer.encode: `specialTokens` must be "add" or "none", got all',
    );
  });

  it("takes half a surrogate pair for U+FFFD", () => {
    expect(tokenizer.encode("a\ud83d b")).toEqual(tokenizer.encode("a\ufffd b"));
  });

  it("leaves the event loop free for long texts, with the same ids", async () => {
    const text = "export class Foo { } ".repeat(100_000);
    let turns = 0;
    const timer = setInterval(() => turns++, 1);
    const ids = await tokenizer.encodeAsync(text);
    clearInterval(timer);
    expect(turns).toBeGreaterThan(2);
    expect(ids).toEqual(tokenizer.encode(text));
  });
});
