import { copyFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Template } from "@huggingface/jinja";
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
    ["one\ntwo\n{% unknown %}", "line 3: Unknown statement type: unknown"],
    ["one\n{{ 'a' ? 'b' }}\nthree", "line 2: Unexpected character: ?"],
    ["{% if true %}\nnever ends", "ends where more is expected"],
    ["{{ messages[0].content | frobnicate }}", "Unknown StringValue filter: frobnicate"],
    ["{{ raise_exception('roles must\nalternate') }}", "the template refuses these messages: roles must alternate"],
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

/** Templates with everything that those of checkpoints use, and everything that the limits check. */
const FEATURES = [
  "{%- if tools %}<tools>{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}\n{{ tools | tojson(indent=2) }}</tools>{% endif %}",
  "{%- for m in messages %}{{ loop.index0 }}{{ loop.last }}{{ '<|im_start|>' + m.role + '\\n' + m.content | trim + '<|im_end|>\\n' }}{% endfor %}",
  "{%- set ns = namespace(found=false, text='') %}{% for m in messages[::-1] %}{% if not ns.found and m.role == 'user' %}{% set ns.found = true %}{% set ns.text = m.content %}{% endif %}{% endfor %}{{ ns.text }}{{ ns }}",
  "{{ messages[0].content.split('</think>')[-1].lstrip('\\n').replace('h', 'H', 1).upper() }}{{ messages[0].content[1:] }}{{ messages[0]['content'][::-1] }}",
  "{% macro item(name, value='none') %}{{ name }}={{ value }};{% endmacro %}{{ item('a') }}{{ item('b', value=3) }}",
  "{% macro box() %}[{{ caller() }}]{% endmacro %}{% call box() %}inner{% endcall %}",
  "{% filter upper %}abc{% endfilter %}{% set x %}block {{ messages | length }}{% endset %}{{ x | indent(2, true) }}{{ 'a\\nb' | indent }}",
  "{{ range(5) | join('-') }}{{ range(1, 10, 3) }}{{ range(5, 0, -2) }}{{ 'abc' | join('.') }}{{ [1, 2.5, 'x', none, true] }}",
  "{{ {'b': 1, 'a': [1, {'c': 'é\"'}]} | tojson(sort_keys=true, ensure_ascii=true, separators=(',', ':')) }}{{ {'a': 1}.items() | list }}",
  "{{ messages | map(attribute='role') | join(', ') }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ [3, 1, 2] | sort(reverse=true) }}",
  "{{ 'a' in 'abc' }}{{ 'x' not in ['x'] }}{{ 7 // 2 }}{{ 7 / 2 }}{{ 2 ** 3 }}{{ 'a' ~ 1 ~ [1] }}{{ ['a'] == 'a' }}{{ missing is defined }}{{ missing | default('d') }}",
  "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% if loop.first %}{% continue %}{% endif %}!{% else %}none{% endfor %}{{ strftime_now('%Y') | length }}",
  "{{ 'a b  c'.split() }}{{ 'a,b,c'.split(',', 1) }}{{ 'aXbX' | replace('X', '--') }}{{ 'abc'['replace']('b', '') }}{{ ' x '.strip() | title }}",
  "{{ namespace(a=[1]).a[0] }}{{ (messages | first).content }}{{ (messages | last).role }}{{ 'yes' if messages else 'no' }}{{ not false and none is none }}{{ messages[0].get('x', 'y') }}",
];

describe("templates within their limits", () => {
  const messages = [
    { role: "system", content: "be brief" },
    { role: "user", content: " hi </think>\n\nthere\n" },
    { role: "assistant", content: "hello" },
  ];
  const tools = [{ name: "f", parameters: { x: { type: "number", enum: [1, 2] } } }, { name: "g" }];

  it.each(FEATURES)("render as the library renders them: %s", (template) => {
    const expected = new Template(template).render({ add_generation_prompt: true, tools, messages });
    expect(expected.length).toBeGreaterThan(0);
    expect(new Tokenizer(withFiles({ "chat_template.jinja": template })).chat(messages, { tools })).toBe(expected);
  });

  it("render any combination of these as the library does, or fail as it does", () => {
    const folder = withFiles({ "chat_template.jinja": "" });
    const pieces = FEATURES.flatMap((feature) => feature.split(/(?<=[%}]\})/));
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...FEATURES, ...pieces), { maxLength: 12 }), (parts) => {
        const template = parts.join("");
        writeFileSync(join(folder, "chat_template.jinja"), template);
        const tokenizer = new Tokenizer(folder);
        let expected: string | undefined;
        try {
          expected = new Template(template).render({ add_generation_prompt: true, tools, messages });
        } catch {}
        if (expected !== undefined) expect(tokenizer.chat(messages, { tools })).toBe(expected);
        else
          expect(() => tokenizer.chat(messages, { tools })).toThrow(expect.objectContaining({ code: "ChatTemplate" }));
      }),
      { numRuns: 300, seed: 7, interruptAfterTimeLimit: 30_000 },
    );
  });
});
