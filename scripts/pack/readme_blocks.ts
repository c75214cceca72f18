// The programs in a README: its blocks marked `js` or `ts`. One whose first comment begins "With what …" goes on after the
// README's first program, within a scope of its own.

interface Program {
  /** The block's language and line. */
  name: string;
  language: "js" | "ts";
  text: string;
}

const CONTINUES = /^\/\/ With what .*\n/;
/** Imports stand at the top of a program, whole. */
const IMPORTS = /^(?:import [^;]*;\n)+/m;
/** The last line of a program that others go on from. */
const DISPOSE = "device.dispose();\n";

function together(first: string, more: string): string {
  const imports = (text: string) => IMPORTS.exec(text)?.[0] ?? "";
  const names = new Map<string, Set<string>>();
  for (const [, list = "", from = ""] of (imports(first) + imports(more)).matchAll(
    /import \{([^}]*)\} from "([^"]+)";/g,
  ))
    for (const name of list.split(",")) {
      const known = names.get(from) ?? new Set();
      names.set(from, known.add(name.trim()));
    }
  const head = [...names].map(([from, list]) => `import { ${[...list].filter(Boolean).join(", ")} } from "${from}";\n`);
  const body = (text: string) => text.replace(CONTINUES, "").replace(IMPORTS, "").replace(DISPOSE, "");
  return `${head.join("")}${body(first)}{\n${body(more)}}\n${DISPOSE}`;
}

/** All programs of a README. */
export function programsOf(markdown: string): Program[] {
  const blocks = [...markdown.matchAll(/^```(js|ts)\n(.*?)^```$/gms)].map((match) => ({
    language: match[1] as Program["language"],
    line: markdown.slice(0, match.index).split("\n").length,
    text: match[2] as string,
  }));
  return blocks.map(({ language, line, text }) => ({
    name: `${language} block at line ${line}`,
    language,
    text: CONTINUES.test(text) ? together(blocks[0]?.text ?? "", text) : text,
  }));
}

/** The lines of the shell blocks of a README, continued ones as one, without comments. */
export function commandsOf(markdown: string): string[] {
  return [...markdown.matchAll(/^```sh\n(.*?)^```$/gms)].flatMap(([, text = ""]) =>
    text
      .replaceAll("\\\n", " ")
      .split("\n")
      .map((line) => line.replace(/\s+#.*$/, "").trim())
      .filter((line) => line !== "" && !line.startsWith("#")),
  );
}
