// Renderings are those of jinja2 in transformers' environment, recorded by fixtures/make_template_goldens.py.
import { readFileSync } from "node:fs";
import { expect, it } from "vitest";
import { Fault } from "../src/templates/faults.ts";
import { Template } from "../src/templates/template.ts";

type Result = string | { error: string };
interface Cases {
  variables: Record<string, Record<string, unknown>>;
  groups: { name: string; variables: string; templates: string[] }[];
}

const read = (name: string) =>
  JSON.parse(readFileSync(new URL(`../../../fixtures/templates/${name}`, import.meta.url), "utf8")) as unknown;
const { variables, groups } = read("cases.json") as Cases;
const { results } = read("results.json") as { results: Result[][] };
const random = (read("random.json") as { cases: [string, Result][] }).cases;

const LIMITS = { steps: 2 ** 24, characters: 2 ** 23, total: 2 ** 25 };
/** The time at which the templates were recorded. */
const now = () => new Date(2024, 1, 7, 9, 5, 3);

/** A rendering, or the kind of its failure. */
function render(template: string, given: Record<string, unknown>): string | { kind: string } {
  try {
    return new Template(template).render(given, LIMITS, now);
  } catch (error) {
    if (error instanceof Fault) return { kind: error.kind };
    throw error;
  }
}

/** Kinds of failures that stand for what Python raises. What prints an address cannot be equal. */
function compare(template: string, given: Record<string, unknown>, recorded: Result): void {
  const found = render(template, given);
  if (typeof recorded === "string" && recorded.includes(" at 0x"))
    expect(found, template).toEqual({ kind: "unsupported" });
  else if (typeof recorded === "string") expect(found, template).toBe(recorded);
  else expect(found, `${template} — ${recorded.error}`).toEqual({ kind: expect.any(String) });
}

it.each(groups.map((group, at) => [group.name, group, results[at] as Result[]] as const))(
  "%s",
  (_, group, recorded) => {
    expect(recorded).toHaveLength(group.templates.length);
    for (const [at, template] of group.templates.entries())
      compare(template, variables[group.variables] as Record<string, unknown>, recorded[at] as Result);
  },
);

it("random templates are equal or refused, and few are refused", () => {
  let refused = 0;
  for (const [template, recorded] of random) {
    const found = render(template, variables.values as Record<string, unknown>);
    if (typeof found === "object" && found.kind === "unsupported" && typeof recorded === "string") refused++;
    else compare(template, variables.values as Record<string, unknown>, recorded);
  }
  expect(random.length).toBeGreaterThanOrEqual(600);
  expect(refused).toBeLessThan(random.length / 100);
});

it("errors have Python's words, and the line", () => {
  const fails = (template: string, given: Record<string, unknown> = {}) => {
    try {
      new Template(template).render(given, LIMITS);
    } catch (error) {
      const { message, line } = error as Fault;
      return `${line}: ${message}`;
    }
    return "nothing";
  };
  expect(fails("\n{{ message.missing.more }}", { message: {} })).toBe("2: 'dict object' has no attribute 'missing'");
  expect(fails("{% if true %}\n{{ nothing.x }}{% endif %}")).toBe("2: 'nothing' is undefined");
  expect(fails("{{ items[5].x }}", { items: [] })).toBe("1: list object has no element 5");
  expect(fails("{{ 'a' + 1 }}")).toBe("1: unsupported operand type(s) for +: 'str' and 'int'");
  expect(fails("{{ ''.__class__.__mro__ }}")).toBe("1: access to attribute '__class__' of 'str' object is unsafe.");
  expect(fails("a\n\n{% include 'x' %}")).toBe("3: the tag {% include %} is not supported");
  expect(fails("{{ 'x' | urlize }}")).toBe("1: the filter `urlize` is not supported");
  expect(fails("{{ 'x' | nothing }}")).toBe("1: No filter named 'nothing'.");
});

it("Maps keep the order of keys that look like integers, objects do not", () => {
  const template = new Template("{{ v | tojson }}");
  const map = new Map<string, unknown>([
    ["b", 1],
    ["10", 2],
    ["9", new Map([["k", 12345678901234567890n]])],
  ]);
  expect(template.render({ v: map }, LIMITS)).toBe('{"b": 1, "10": 2, "9": {"k": 12345678901234567890}}');
  expect(template.render({ v: { b: 1, 10: 2, 9: 3 } }, LIMITS)).toBe('{"9": 3, "10": 2, "b": 1}');
});
