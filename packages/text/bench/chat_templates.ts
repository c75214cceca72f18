// Times of a chat of 100 messages with tools: this engine beside the library @huggingface/jinja. Both parse once.
import { readFileSync } from "node:fs";
import { Template as Peer } from "@huggingface/jinja";
import { Template } from "../src/templates/template.ts";

const TEMPLATE = `{%- if tools %}<|im_start|>system
{% if messages[0].role == "system" %}{{ messages[0].content }}{% endif %}
# Tools
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}<|im_end|>
{% endif %}
{%- set ns = namespace(last=messages | length - 1) %}
{%- for message in messages[::-1] %}
  {%- if message.role == "user" and ns.last == messages | length - 1 %}{% set ns.last = loop.revindex0 %}{% endif %}
{%- endfor %}
{%- for message in messages %}
  {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
    {{- "<|im_start|>" + message.role + "\\n" + message.content + "<|im_end|>" + "\\n" }}
  {%- elif message.role == "assistant" %}
    {%- set content = message.content %}
    {%- if "</think>" in content %}{% set content = content.split("</think>")[-1] %}{% endif %}
    {{- "<|im_start|>assistant\\n" + content }}
    {%- if message.tool_calls %}
      {%- for call in message.tool_calls %}
        {{- "\\n<tool_call>" }}{{ call.function | tojson }}{{ "</tool_call>" }}
      {%- endfor %}
    {%- endif %}
    {{- "<|im_end|>\\n" }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ "<|im_start|>assistant\\n" }}{% endif %}`;

const { variables } = JSON.parse(
  readFileSync(new URL("../../../fixtures/templates/cases.json", import.meta.url), "utf8"),
) as { variables: { chat: { tools: unknown[]; messages: { tool_calls?: unknown[] }[] } } };
const calls = variables.chat.messages.find((message) => message.tool_calls)?.tool_calls;
const messages = Array.from({ length: 100 }, (_, at) => ({
  role: at === 0 ? "system" : at % 2 === 1 ? "user" : "assistant",
  content: `${at % 2 === 0 && at > 0 ? "<think>\nhm\n</think>\n\n" : ""}${"Some words of the conversation. ".repeat(8)}${at}`,
  ...(at % 10 === 4 ? { tool_calls: calls } : {}),
}));
const given = { messages, tools: variables.chat.tools, add_generation_prompt: true };
const LIMITS = { steps: 2 ** 24, characters: 2 ** 23, total: 2 ** 25 };

const own = new Template(TEMPLATE);
const peer = new Peer(TEMPLATE);

/** The median time of a call in milliseconds. */
function median(call: () => unknown): number {
  for (let warmUp = 0; warmUp < 30; warmUp++) call();
  const times = Array.from({ length: 101 }, () => {
    const begin = performance.now();
    call();
    return performance.now() - begin;
  });
  return times.sort((a, b) => a - b)[50] as number;
}

const rows = {
  "parse, this engine": () => new Template(TEMPLATE),
  "parse, @huggingface/jinja": () => new Peer(TEMPLATE),
  "render 100 messages, this engine": () => own.render(given, LIMITS),
  "render 100 messages, @huggingface/jinja": () => peer.render(given),
};
for (const [name, call] of Object.entries(rows)) console.log(`${name.padEnd(42)} ${median(call).toFixed(3)} ms`);
