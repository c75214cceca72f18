import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { ChatMessage } from "../src/index.ts";
import { Tokenizer } from "../src/node.ts";
import { temporary, tiny } from "./fixtures.ts";

const hi: ChatMessage[] = [{ role: "user", content: "hi" }];

/** A folder with the tiny tokenizer and other files. */
function withFiles(files: Record<string, unknown>): string {
  const folder = temporary();
  copyFileSync(join(tiny, "tokenizer.json"), join(folder, "tokenizer.json"));
  for (const [name, value] of Object.entries(files))
    writeFileSync(join(folder, name), typeof value === "string" ? value : JSON.stringify(value));
  return folder;
}

const list = [
  { name: "default", template: "plain {{ messages[0].content }}" },
  { name: "tool_use", template: "tools {{ tools | length }}" },
  { name: "rag", template: "rag" },
];

describe("chat templates are read", () => {
  it("from a list of named ones", () => {
    const tokenizer = new Tokenizer(withFiles({ "tokenizer_config.json": { chat_template: list } }));
    expect(tokenizer.hasChatTemplate).toBe(true);
    expect(tokenizer.chatTemplates).toEqual(["default", "tool_use", "rag"]);
    expect(tokenizer.chat(hi)).toBe("plain hi");
    expect(tokenizer.chat(hi, { tools: [{}, {}] })).toBe("tools 2");
    expect(tokenizer.chat(hi, {}, { template: "rag" })).toBe("rag");
    expect(() => tokenizer.chat(hi, {}, { template: "none" })).toThrow(
      /^tokenizer.chat: `template` must be one of default, tool_use, rag, the templates of .*tokenizer_config.json, got none$/,
    );
    const only = new Tokenizer(withFiles({ "tokenizer_config.json": { chat_template: list.slice(2) } }));
    expect(only.chat(hi)).toBe("rag");
    const unnamed = new Tokenizer(withFiles({ "tokenizer_config.json": { chat_template: list.slice(1) } }));
    expect(() => unnamed.chat(hi)).toThrow(/got no name, and none is called default$/);
  });

  it("from chat_template.json and chat_template.jinja, the latter before all others", () => {
    const json = { "chat_template.json": { chat_template: "json" } };
    expect(new Tokenizer(withFiles(json)).chat(hi)).toBe("json");
    expect(new Tokenizer(withFiles({ "chat_template.json": { chat_template: list } })).chat(hi)).toBe("plain hi");
    const config = { ...json, "tokenizer_config.json": { chat_template: "config" } };
    expect(new Tokenizer(withFiles(config)).chat(hi)).toBe("config");
    expect(new Tokenizer(withFiles({ ...config, "chat_template.jinja": "jinja" })).chat(hi)).toBe("jinja");
  });

  it("with the special tokens of the config, as texts or objects", () => {
    const config = { bos_token: { content: "<s>", lstrip: false }, eos_token: "</s>", pad_token: null };
    const folder = withFiles({
      "tokenizer_config.json": config,
      "chat_template.jinja": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}",
    });
    expect(new Tokenizer(folder).chat(hi)).toBe("<s>hi</s>");
  });

  it.each([
    [7, "`chat_template` must be a text, or a list of objects with `name` and `template`"],
    [[{ name: "a" }], "`chat_template` must be a text, or a list of objects with `name` and `template`"],
    [[null], "`chat_template` must be a text, or a list of objects with `name` and `template`"],
    [[list[0], list[0]], "has two chat templates with the name `default`"],
  ])("and refused when they are malformed: %j", (field, message) => {
    const folder = withFiles({ "tokenizer_config.json": { chat_template: field } });
    expect(() => new Tokenizer(folder)).toThrow(
      expect.objectContaining({
        code: "ChatTemplate",
        message: `${join(folder, "tokenizer_config.json")}: ${message}`,
      }),
    );
  });
});

describe("a broken chat template is named with file and line", () => {
  it.each([
    ["one\n{% for m in messages %}\n{{ m.content | }}\n{% endfor %}", "line 3: "],
    ["one\ntwo\n{% unknown %}", "line 3: Encountered unknown tag 'unknown'."],
    ["one\n{{ 'a' ? 'b' }}\nthree", 'line 2: unexpected char "?"'],
    ["{% if true %}\nnever ends", "line 2: Unexpected end of template. Looking for elif or else or endif of {% if %}"],
    ["{{ messages[0].content | frobnicate }}", "line 1: No filter named 'frobnicate'."],
    [
      "{{ raise_exception('roles must\nalternate') }}",
      "line 1: the template refuses these messages: roles must alternate",
    ],
    ["{{ raise_exception(messages) }}", "the template refuses these messages: "],
  ])("%j", (template, message) => {
    const folder = withFiles({ "chat_template.jinja": template });
    const tokenizer = new Tokenizer(folder);
    let caught: { code?: string; message?: string } = {};
    try {
      tokenizer.chat(hi);
    } catch (error) {
      caught = error as typeof caught;
    }
    expect(caught.code).toBe("ChatTemplate");
    expect(caught.message?.startsWith(`${join(folder, "chat_template.jinja")}: `)).toBe(true);
    expect(caught.message).toContain(message);
  });
});

/** Pieces of templates that use what those of checkpoints use. */
const { groups } = JSON.parse(
  readFileSync(new URL("../../../fixtures/templates/cases.json", import.meta.url), "utf8"),
) as { groups: { name: string; templates: string[] }[] };
const PIECES = groups
  .filter(({ name }) => name === "mixed features" || name === "chat templates")
  .flatMap(({ templates }) => [...templates, ...templates.flatMap((template) => template.split(/(?<=[%}]\})/))]);

describe("templates within their limits", () => {
  const messages = [
    { role: "system", content: "be brief" },
    { role: "user", content: " hi </think>\n\nthere\n" },
    { role: "assistant", content: "hello" },
  ];
  const tools = [{ name: "f", parameters: { x: { type: "number", enum: [1, 2] } } }, { name: "g" }];

  it("any combination of pieces renders or fails with a typed error", () => {
    const folder = withFiles({});
    const ends = { text: 0, error: 0 };
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...PIECES), { maxLength: 12 }), (parts) => {
        writeFileSync(join(folder, "chat_template.jinja"), parts.join(""));
        const tokenizer = new Tokenizer(folder);
        try {
          tokenizer.chat(messages, { tools });
          ends.text++;
        } catch (error) {
          expect(["ChatTemplate", "LimitExceeded"]).toContain((error as { code?: string }).code);
          ends.error++;
        }
      }),
      { numRuns: 60, seed: 7, interruptAfterTimeLimit: 30_000 },
    );
    expect(Math.min(ends.text, ends.error)).toBeGreaterThan(3);
  });

  it("has the variables that transformers gives, None where they are not given", () => {
    const template = "{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ missing is defined }}";
    expect(new Tokenizer(withFiles({ "chat_template.jinja": template })).chat(messages)).toBe("TrueTrueTrueFalse");
  });
});
