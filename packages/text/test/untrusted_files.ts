import { readFileSync } from "node:fs";
import { join } from "node:path";

type Json = Record<string, unknown>;

/** Chat templates that would take all memory, or minutes, without limits. */
export const TEMPLATES: Record<string, string> = {
  "a long range": "{% for i in range(2000000000) %}{% endfor %}",
  "ranges in a list":
    "{% set ns = namespace(l=[]) %}{% for i in range(90000) %}{% set ns.l = ns.l + range(90000) %}{% endfor %}",
  "nested loops":
    "{% set r = range(90000) %}{% for a in r %}{% for b in r %}{% for c in r %}{% endfor %}{% endfor %}{% endfor %}",
  "text that doubles":
    "{% set ns = namespace(x='xxxxxxxxxx') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
  "text that doubles in a block":
    "{% set ns = namespace(x='xx') %}{% for i in range(60) %}{% set x %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = x %}{% endfor %}{{ ns.x }}",
  "lists in lists":
    "{% set ns = namespace(x=['xxxxxxxxxx']) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
  "dicts in dicts":
    "{% set ns = namespace(x={'a': 'x'}) %}{% for i in range(60) %}{% set ns.x = {'a': ns.x, 'b': ns.x} %}{% endfor %}{{ ns.x | tojson }}",
  "a list compared with a text":
    "{% set ns = namespace(x=['x']) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x == 'x' }}",
  "a namespace in a list":
    "{% set ns = namespace(a='x') %}{% set l = [ns, ns, ns, ns, ns, ns, ns, ns] %}{% for i in range(40) %}{% set ns.a = ns.a ~ ns.a %}{{ l }}{% endfor %}",
  "a namespace in itself": "{% set ns = namespace(a='x') %}{% set ns.a = [ns] %}{{ ns }}",
  "a wide indent": "{{ 'a\\nb\\nc' | indent(1000000000) }}",
  "a wide indent of many lines": "{{ ('a\\n' | replace('a', range(90000) | join('\\n'))) | indent(width=100000) }}",
  "wide JSON": "{{ range(90000) | list | tojson(indent=100000) }}",
  "JSON with long separators": "{% set s = range(90000) | join(',') %}{{ range(90000) | tojson(separators=(s, s)) }}",
  "long separators": "{% set s = range(90000) | join(',') %}{{ range(90000) | join(s) }}",
  "replacements of everything": "{% set s = range(90000) | join(',') %}{{ s.replace('', s) }}",
  "replacements by a filter": "{% set s = range(90000) | join(',') %}{{ s | replace(',', s) }}",
  "replacements by a method in a variable":
    "{% set s = range(90000) | join(',') %}{% set f = s.replace %}{% call f(',', s) %}{% endcall %}{{ s['replace'](',', s) }}",
  "splitting again and again":
    "{% set s = range(90000) | join(',') %}{% set ns = namespace(l=[]) %}{% for i in range(90000) %}{% set ns.l = ns.l + s.split(',') %}{% endfor %}",
  "long text many times": `{% set s = range(90000) | join(',') %}${"{{ s }}".repeat(2000)}`,
  "a long list many times": `{% set s = range(90000) %}${"{{ s }}".repeat(2000)}`,
  "slices of slices":
    "{% set s = range(90000) | join(',') %}{% for i in range(90000) %}{% set x = s[::-1] %}{% endfor %}",
  "endless recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
  "branching recursion":
    "{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
  "deep brackets": `{{ ${"(".repeat(100_000)}1${")".repeat(100_000)} }}`,
  "deep blocks": `${"{% if true %}".repeat(40_000)}${"{% endif %}".repeat(40_000)}`,
  "deep lists": `{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}`,
  "no such filter": "{{ [] | first | nothing }}",
};

/** Those of `hostileTokenizers` that did harm to another implementation only. */
export const HARMLESS: ReadonlySet<string> = new Set(["a long added token", "overlapping tokens"]);

/** Changes of a `tokenizer.json` that would make it take all memory, or minutes, for some texts. */
export function hostileTokenizers(directory: string): Record<string, string> {
  const base = JSON.parse(readFileSync(join(directory, "tokenizer.json"), "utf8")) as Json;
  const model = base.model as Json;
  const split = (Regex: string) => ({
    ...base,
    pre_tokenizer: { type: "Split", pattern: { Regex }, behavior: "Isolated" },
  });
  const normalizer = (...normalizers: Json[]) => ({ ...base, normalizer: { type: "Sequence", normalizers } });
  const doubled = { type: "Replace", pattern: { Regex: "(.)" }, content: "aa" };
  const chain = Array.from({ length: 1000 }, (_, i) => ["a".repeat(i + 1), -i]);
  const everyA = { type: "Replace", pattern: { Regex: "[^a]" }, content: "a" };
  const files: Record<string, Json> = {
    "(a+)+$": split("(a+)+$"),
    "(a|aa)+$": split("(a|aa)+$"),
    "(.*)*x": split("(.*)*x"),
    "nested counts": split("(?:(?:(?:a{1,1000}){1,1000}){1,1000}){1,1000}b"),
    "a slow normalizer": normalizer({ type: "Replace", pattern: { Regex: "(a*)*b" }, content: "" }),
    "a text that doubles": normalizer(...Array.from({ length: 10 }, () => doubled)),
    "a text that doubles for ever": normalizer(...Array.from({ length: 200 }, () => doubled)),
    "bytes of bytes": {
      ...base,
      pre_tokenizer: {
        type: "Sequence",
        pretokenizers: Array.from({ length: 60 }, () => ({
          type: "ByteLevel",
          add_prefix_space: true,
          use_regex: false,
        })),
      },
    },
    "groups of a removed pattern": {
      ...base,
      pre_tokenizer: { type: "Split", pattern: { Regex: `${"()".repeat(8000)}a` }, behavior: "Removed", invert: false },
    },
    "the rest of the text for spaces": {
      ...base,
      normalizer: { type: "Replace", pattern: { String: "a" }, content: " " },
      pre_tokenizer: { type: "Metaspace", replacement: "$'", prepend_scheme: "never" },
    },
    "pieces of no length": { ...base, pre_tokenizer: { type: "FixedLength", length: 0 } },
    "pieces of negative length": { ...base, pre_tokenizer: { type: "FixedLength", length: -1 } },
    "a text thousands of times": {
      ...base,
      post_processor: {
        type: "Sequence",
        processors: Array.from({ length: 12 }, () => ({
          type: "TemplateProcessing",
          single: Array.from({ length: 8 }, () => ({ Sequence: { id: "A", type_id: 0 } })),
          pair: [],
          special_tokens: {},
        })),
      },
    },
    "overlapping tokens": {
      ...normalizer(everyA),
      model: { type: "Unigram", unk_id: 0, vocab: chain },
      added_tokens: [],
    },
    "a long added token": {
      ...base,
      added_tokens: [{ id: 9000, content: `${"a".repeat(16000)}b`, special: false, normalized: false }],
    },
    "a slow decoder": {
      ...base,
      decoder: { type: "Replace", pattern: { Regex: "(a+)+$" }, content: "" },
      model: { ...model, vocab: { ...(model.vocab as Json), [`${"a".repeat(40)}!`]: 4096 } },
    },
  };
  const nested = `${'{"type":"Sequence","normalizers":['.repeat(5000)}{"type":"NFC"}${"]}".repeat(5000)}`;
  return {
    ...Object.fromEntries(Object.entries(files).map(([name, json]) => [name, JSON.stringify(json)])),
    "nested normalizers": JSON.stringify({ ...base, normalizer: "HERE" }).replace('"HERE"', nested),
  };
}
