import { describe, expect, it } from "vitest";
import { type ChatMessage, Tokenizer } from "../src/index.ts";

const vocabulary = { "tokenizer.json": { model: { type: "WordLevel", vocab: { a: 0 }, unk_token: "a" } } };
const render = (template: string, messages: readonly ChatMessage[]) =>
  new Tokenizer({ ...vocabulary, "chat_template.jinja": template }).chat(messages);

const parts = [
  {
    role: "user",
    content: [
      { type: "text", text: "one " },
      { type: "text", text: "two" },
    ],
  },
];

describe("content in parts", () => {
  it("is their text for templates that are made for texts", () => {
    const template = "{% for m in messages %}{% if m.content is string %}[{{ m.content }}]{% endif %}{% endfor %}";
    expect(render(template, parts)).toBe("[one two]");
    expect(render("{{ messages[0]['content'] | upper }}", parts)).toBe("ONE TWO");
  });

  it.each([
    "{% for p in messages[0].content %}<{{ p.text }}>{% endfor %}",
    "{% for p in messages[0]['content'][:2] %}<{{ p.text }}>{% endfor %}",
    "{% for m in messages %}{% set c = m.content or [] %}{% for p in c %}<{{ p.text }}>{% endfor %}{% endfor %}",
    "{% macro show(content) %}{% for p in content %}<{{ p.text }}>{% endfor %}{% endmacro %}{{ show(messages[0].content) }}",
    "{% if true %}{% for p in messages[0].content | list %}<{{ p.text }}>{% endfor %}{% endif %}",
    "{% with c = messages[0].content %}{% for p in c %}<{{ p.text }}>{% endfor %}{% endwith %}",
  ])("stays what it is for templates with a loop over it: %s", (template) => {
    expect(render(template, parts)).toBe("<one ><two>");
  });

  it("stays what it is where a part is no text", () => {
    const image = [{ role: "user", content: [{ type: "image" }, { type: "text", text: "a" }] }];
    expect(render("{{ messages[0].content | length }}", image)).toBe("2");
    expect(render("{{ messages[0].content | length }}", [{ role: "user", content: [] }])).toBe("0");
  });
});

describe("arguments of tool calls", () => {
  const calls = (args: unknown) => [
    { role: "assistant", content: "", tool_calls: [{ type: "function", function: { name: "f", arguments: args } }] },
  ];
  const template =
    "{% for k, v in messages[0].tool_calls[0].function.arguments | items %}{{ k }}={{ v | tojson }};{% endfor %}";

  it("may be JSON texts", () => {
    expect(render(template, calls('{"city": "Bern", "days": 2}'))).toBe('city="Bern";days=2;');
    expect(render(template, calls({ city: "Bern", days: 2 }))).toBe('city="Bern";days=2;');
    const plain = [{ role: "assistant", tool_calls: [{ name: "f", arguments: '{"a": true}' }] }];
    expect(render("{{ messages[0].tool_calls[0].arguments.a }}", plain)).toBe("True");
  });

  it.each(["{not JSON", "[1, 2]", "5"])("stay texts where they are no object: %s", (text) => {
    expect(render("{{ messages[0].tool_calls[0].function.arguments }}", calls(text))).toBe(text);
  });

  it("leave the caller's messages as they are", () => {
    const given = calls('{"a": 1}');
    const before = structuredClone(given);
    render(template, given);
    expect(given).toEqual(before);
  });
});
