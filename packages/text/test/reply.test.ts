import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { opensReasoning, ReplyParser, type ReplyPart, StopTexts, type ToolFormat, toolFormatOf } from "../src/index.ts";

const tools = [
  {
    type: "function",
    function: {
      name: "get_weather",
      parameters: {
        properties: { city: { type: "string" }, days: { type: "integer" }, raw: {}, on: { type: "boolean" } },
      },
    },
  },
  { name: "ls" },
];

/** The parts of a reply that comes in these pieces, neighbors of one kind put together. */
function partsOf(pieces: readonly string[], options: ConstructorParameters<typeof ReplyParser>[0]): ReplyPart[] {
  const parser = new ReplyParser(options);
  const merged: ReplyPart[] = [];
  for (const part of [...pieces.flatMap((piece) => parser.push(piece)), ...parser.end()]) {
    const last = merged.at(-1);
    if (part.type !== "toolCall" && last?.type === part.type) last.text += part.text;
    else merged.push({ ...part });
  }
  return merged;
}

const call = (name: string, args: string, index = 0): ReplyPart => ({ type: "toolCall", index, name, arguments: args });
const text = (value: string): ReplyPart => ({ type: "text", text: value });
const reasoning = (value: string): ReplyPart => ({ type: "reasoning", text: value });

const hermes = (body: string) => `<tool_call>\n${body}\n</tool_call>`;
const v3 = (name: string, json: string) =>
  `<｜tool▁call▁begin｜>function<｜tool▁sep｜>${name}\n\`\`\`json\n${json}\n\`\`\`<｜tool▁call▁end｜>`;
const v31 = (name: string, json: string) => `<｜tool▁call▁begin｜>${name}<｜tool▁sep｜>${json}<｜tool▁call▁end｜>`;
const section = (...calls: string[]) => `<｜tool▁calls▁begin｜>${calls.join("\n")}<｜tool▁calls▁end｜>`;

const REPLIES: [format: ToolFormat | undefined, inReasoning: boolean, reply: string, parts: ReplyPart[]][] = [
  [undefined, false, "plain < text <think> here\n", [text("plain < text <think> here\n")]],
  [undefined, false, "<think>\nwhy\n\n</think>\n\nso\n", [reasoning("why"), text("so\n")]],
  [undefined, true, "why </thin </think>so", [reasoning("why </thin "), text("so")]],
  [undefined, true, "never ends\n", [reasoning("never ends")]],
  [undefined, false, " \n<thin", [text(" \n<thin")]],
  [
    "hermes",
    false,
    `Let me see.\n${hermes('{"name": "get_weather", "arguments": {"city": "</tool_call> \\"{", "days": 12345678901234567890}}')}\n${hermes('{"arguments": {}, "name": "ls"}')}`,
    [
      text("Let me see."),
      call("get_weather", '{"city": "</tool_call> \\"{", "days": 12345678901234567890}'),
      call("ls", "{}", 1),
    ],
  ],
  // What comes to no call stays reasoning.
  [
    "hermes",
    true,
    "I could use <tool_call> tags.\nSecret.</think>Hi",
    [reasoning("I could use <tool_call> tags.\nSecret."), text("Hi")],
  ],
  [
    "hermes",
    true,
    `a ${hermes('{"name": "unknown", "arguments": {}}')} b</think>c`,
    [reasoning(`a ${hermes('{"name": "unknown", "arguments": {}}')} b`), text("c")],
  ],
  ["hermes", true, "why <tool_call>\n{", [reasoning("why <tool_call>\n{")]],
  [
    "deepseek_v3",
    true,
    "a <｜tool▁calls▁begin｜> none</think>b",
    [reasoning("a <｜tool▁calls▁begin｜> none"), text("b")],
  ],
  [
    "hermes",
    true,
    `hm\n${hermes('{"name": "ls", "arguments": "{}"}')}\nok`,
    [reasoning("hm"), call("ls", "{}"), text("\nok")],
  ],
  ["hermes", false, hermes('{"name": "rm", "arguments": {}}'), [text(hermes('{"name": "rm", "arguments": {}}'))]],
  ["hermes", false, '<tool_call>\n{"name": "ls", "argum', [text('<tool_call>\n{"name": "ls", "argum')]],
  [
    "hermes",
    false,
    `<tool_call>{"name": "ls" <tool_call>${hermes('{"name": "ls", "arguments": {}}')}`,
    [text('<tool_call>{"name": "ls" <tool_call>'), call("ls", "{}")],
  ],
  ["hermes", false, hermes('{"name": "ls", "arguments": [1]}'), [text(hermes('{"name": "ls", "arguments": [1]}'))]],
  [
    "qwen_xml",
    false,
    hermes(
      "<function=get_weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=raw>\na </parameter> b\n</tool_call>\n\n</parameter>\n<parameter=on>\nTrue\n</parameter>\n</function>",
    ),
    [call("get_weather", '{"city": "12", "days": 3, "raw": "a </parameter> b\\n</tool_call>\\n", "on": true}')],
  ],
  ["qwen_xml", false, hermes("<function=ls>\n</function>"), [call("ls", "{}")]],
  ["qwen_xml", false, hermes("<function=rm>\n</function>"), [text(hermes("<function=rm>\n</function>"))]],
  [
    "qwen_xml",
    false,
    hermes(
      "<function=ls>\n<parameter=__proto__>\n{}\n</parameter>\n<parameter=1>\n[1, 2.0]\n</parameter>\n</function>",
    ),
    [call("ls", '{"__proto__": {}, "1": [1, 2.0]}')],
  ],
  [
    "deepseek_v3",
    false,
    `ok${section(v3("ls", "{}"), v3("get_weather", '{"city": "```"}'))}`,
    [text("ok"), call("ls", "{}"), call("get_weather", '{"city": "```"}', 1)],
  ],
  ["deepseek_v3", false, section(v3("rm", "{}")), [text(section(v3("rm", "{}")))]],
  [
    "deepseek_v31",
    true,
    `a</think>${section(v31("ls", '{"a": 1}'), v31("ls", "{}"))}`,
    [reasoning("a"), call("ls", '{"a": 1}'), call("ls", "{}", 1)],
  ],
  ["deepseek_v31", false, section("\n nothing"), [text(section("\n nothing"))]],
];

describe("replies are taken apart", () => {
  it.each(REPLIES)("%s, in reasoning %s: %j, for every split", (toolFormat, inReasoning, reply, parts) => {
    const options = { tools, toolFormat, inReasoning };
    expect(partsOf([reply], options)).toEqual(parts);
    expect(partsOf([...reply], options)).toEqual(parts);
    for (let at = 1; at < reply.length; at++)
      expect(partsOf([reply.slice(0, at), reply.slice(at)], options)).toEqual(parts);
  });

  const TAGS = REPLIES.flatMap(([, , reply]) => reply.split(/(?<=[>}\]])|(?=[<{[])/));
  it("in the same parts for any split, with arguments that parse, and no text lost", () => {
    const formats = [undefined, "hermes", "qwen_xml", "deepseek_v3", "deepseek_v31"] as const;
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom(...TAGS, ...REPLIES.map(([, , reply]) => reply), "\n", "<", "a", " "), {
          maxLength: 12,
        }),
        fc.constantFrom(...formats),
        fc.boolean(),
        fc.array(fc.nat(400), { maxLength: 12 }),
        fc.constantFrom([], ["</tool_call>\n"], ["a<", "<a", "ok"]),
        (words, toolFormat, inReasoning, cuts, stop) => {
          const reply = words.join("");
          const options = { tools, toolFormat, inReasoning, stop };
          const whole = partsOf([reply], options);
          const places = [0, ...cuts.map((cut) => cut % (reply.length + 1)).sort((a, b) => a - b), reply.length];
          const pieces = places.slice(1).map((end, index) => reply.slice(places[index], end));
          expect(partsOf(pieces, options)).toEqual(whole);
          for (const part of whole)
            if (part.type === "toolCall")
              expect(Object.prototype.toString.call(JSON.parse(part.arguments))).toBe("[object Object]");
          const isPlain = !inReasoning && !whole.some(({ type }) => type !== "text") && stop.length === 0;
          if (isPlain && !/<think>|<\/think>/.test(reply))
            expect(whole.map((part) => (part.type === "text" ? part.text : "")).join("")).toBe(reply);
        },
      ),
      { numRuns: 10_000, seed: 5 },
    );
  }, 120_000);

  it("knows the format of a template, and whether a prompt opens reasoning", () => {
    expect(toolFormatOf("{{ '<tool_call>\\n{\"name\": ' }}")).toBe("hermes");
    expect(toolFormatOf("<tool_call>\n<function=f>\n<parameter=p>")).toBe("qwen_xml");
    expect(toolFormatOf("<｜tool▁sep｜>' + name + '\\n```json")).toBe("deepseek_v3");
    expect(toolFormatOf("<｜tool▁sep｜>")).toBe("deepseek_v31");
    expect(toolFormatOf("{{ messages }}")).toBeUndefined();
    expect(opensReasoning("<|im_start|>assistant\n<think>\n")).toBe(true);
    expect(opensReasoning("<think>\n\n</think>\n\n")).toBe(false);
  });

  it("takes time in proportion to hostile replies", () => {
    const begin = process.cpuUsage();
    for (const unit of [
      "<tool_call>",
      '<tool_call>{"a',
      "</parameter>\n",
      "<think>",
      " \n",
      "<tool_call>\n<function=ls>\n<parameter=a>\n",
    ])
      for (const toolFormat of ["hermes", "qwen_xml"] as const) partsOf([...unit.repeat(5000)], { tools, toolFormat });
    const { user, system } = process.cpuUsage(begin);
    expect((user + system) / 1e6).toBeLessThan(20);
  });
});

describe("stop texts", () => {
  it("end a text where the first is complete, for any split, and are never shown in part", () => {
    const letter = fc.constantFrom("a", "b", "c");
    const word = fc.array(letter, { minLength: 1, maxLength: 4 }).map((letters) => letters.join(""));
    fc.assert(
      fc.property(fc.array(word, { maxLength: 4 }), fc.array(word, { maxLength: 12 }), (stops, pieces) => {
        const whole = pieces.join("");
        let expected: [string, string | undefined] = [whole, undefined];
        for (let end = 1; end <= whole.length && expected[1] === undefined; end++) {
          const found = stops
            .filter((stop) => whole.slice(0, end).endsWith(stop))
            .sort((a, b) => b.length - a.length)[0];
          if (found !== undefined) expected = [whole.slice(0, end - found.length), found];
        }
        const texts = new StopTexts(stops);
        let shown = "";
        for (const piece of pieces) {
          shown += texts.push(piece);
          expect(expected[0].startsWith(shown)).toBe(true);
        }
        expect([shown + texts.end(), texts.found]).toEqual(expected);
      }),
      { numRuns: 3000, seed: 1 },
    );
  });

  it("are refused when they are empty, too many, or no texts", () => {
    expect(() => new StopTexts([""])).toThrow("StopTexts: `texts` must have 1 to 4096 characters, got 0");
    expect(() => new StopTexts([1 as never])).toThrow("StopTexts: `texts` must be texts, got 1");
    expect(() => new StopTexts("a" as never)).toThrow("StopTexts: `texts` must be an array of texts, got a");
    expect(() => new ReplyParser({ toolFormat: "xml" as never })).toThrow(
      "`toolFormat` must be one of hermes, qwen_xml",
    );
    expect(() => new ReplyParser({ tools: [{}] })).toThrow("`tools` must have names");
  });
});
