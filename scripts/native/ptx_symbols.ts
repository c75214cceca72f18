/** Where a function or a variable of PTX begins; what it consists of begins otherwise. */
const BEGIN = /\n(?=\.(?:visible|weak|extern|func|entry|global|shared|const)\b)/;
const FUNCTION = /^(?:\.(?:visible|weak|extern) )?\.(func|entry) (?: ?\([^)]*\) )?([\w$]+)/;

/**
 * Entry functions of one PTX, by name: each the text with that entry alone, and of the other functions those that it calls,
 * directly or not.
 */
export function entriesOf(ptx: string): Map<string, string> {
  const parts = ptx
    .replace(/^\t\/\/ \.globl.*\n/gm, "")
    .split(BEGIN)
    .map((text) => {
      const [, kind, name] = FUNCTION.exec(text) ?? [];
      return { text, kind, name };
    });
  const texts = new Map<string, string>();
  for (const { text, name } of parts) if (name !== undefined) texts.set(name, (texts.get(name) ?? "") + text);
  const calls = new Map(
    [...texts].map(([name, text]) => [name, new Set(text.match(/[\w$]+/g)?.filter((word) => texts.has(word)))]),
  );
  const entries = parts.filter(({ kind }) => kind === "entry").map(({ name }) => name as string);
  return new Map(
    entries.map((entry) => {
      const reached = new Set([entry]);
      for (const name of reached) for (const called of calls.get(name) ?? []) reached.add(called);
      const kept = parts.filter(({ name }) => name === undefined || reached.has(name));
      return [entry, kept.map(({ text }) => text).join("\n")];
    }),
  );
}
