// Seeded faults: texts of a .metal file, or of a header, that differ from it in one place and that a test must reject.
import { metalLines } from "./metal_lines.ts";

export type MutationKind = "barrier" | "index" | "bound" | "params" | "binding";

export interface Mutation {
  kind: MutationKind;
  /** From 1. */
  line: number;
  /** What was changed, and which of several on the line. */
  what: string;
  /** The whole text, changed. */
  text: string;
}

interface Token {
  text: string;
  at: number;
  /** White space before it, and behind it. */
  spaced: boolean;
  spacedAfter: boolean;
}

const SKIPPED = /\s+|\/\/[^\n]*|\/\*[\s\S]*?\*\/|\\\n/uy;
const DIRECTIVE = /#[ \t]*(?<name>\w+)(?:\\\n|[^\n])*/uy;
const MACRO_HEAD = /#[ \t]*define[ \t]+\w+(?:\([^)\n]*\))?/uy;
const TOKEN =
  /[A-Za-z_]\w*|(?:\d|\.\d)(?:[eEpP][+-]|'?[\w.])*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\[\[|::|->|<<=|>>=|&&|\|\||[-+*/%&|^=!<>]=|\+\+|--|<<|>>|./suy;

/** Tokens of code; of directives only the bodies of macros, and no attributes. */
function tokenize(source: string): Token[] {
  const tokens: Token[] = [];
  const take = (pattern: RegExp, at: number) => {
    pattern.lastIndex = at;
    return pattern.exec(source);
  };
  for (let at = 0; at < source.length; ) {
    const skipped = take(SKIPPED, at);
    if (skipped) {
      at += skipped[0].length;
      continue;
    }
    if (source[at] === "#") {
      const head = take(MACRO_HEAD, at);
      at += (head ?? take(DIRECTIVE, at))?.[0].length ?? 1;
      continue;
    }
    const text = take(TOKEN, at)?.[0] ?? source.slice(at, at + 1);
    if (text === "[[") {
      const end = source.indexOf("]]", at);
      at = end < 0 ? source.length : end + 2;
      continue;
    }
    const end = at + text.length;
    tokens.push({
      text,
      at,
      spaced: /\s/.test(source[at - 1] ?? " "),
      spacedAfter: /\s/.test(source[end] ?? " "),
    });
    at = end;
  }
  return tokens;
}

const CLOSE: Record<string, string> = { "(": ")", "[": "]", "{": "}" };

/** Index of the bracket that closes the one at `open`. */
function closing(tokens: readonly Token[], open: number): number {
  const { text } = tokens[open] as Token;
  let depth = 0;
  for (let i = open; i < tokens.length; i++) {
    if (tokens[i]?.text === text) depth++;
    else if (tokens[i]?.text === CLOSE[text] && --depth === 0) return i;
  }
  return tokens.length - 1;
}

function opening(tokens: readonly Token[], close: number): number {
  let depth = 0;
  for (let i = close; i >= 0; i--) {
    if (tokens[i]?.text === "]") depth++;
    else if (tokens[i]?.text === "[" && --depth === 0) return i;
  }
  return 0;
}

const isName = (token: Token | undefined) => token !== undefined && /^[A-Za-z_]/.test(token.text);
const STATEMENT_WORDS = /^(return|else|case|do|goto|break|continue|if|for|while|switch|sizeof)$/;
const QUALIFIERS = /^(const|constexpr|constant|thread|threadgroup|device|static|volatile|unsigned|signed)$/;

/** Whether a declaration may have a declarator behind this token. */
const isType = (token: Token | undefined) =>
  token?.text === ">" || (isName(token) && !STATEMENT_WORDS.test(token?.text ?? ""));

/** Whether `[` at `i` gives an array's size and not an index: behind the name that a declaration declares. */
function isDeclarator(tokens: readonly Token[], i: number): boolean {
  let base = i - 1;
  while (tokens[base]?.text === "]") base = opening(tokens, base) - 1;
  // `float (&sums)[4]`, a reference to an array.
  const [paren, mark, , end] = tokens.slice(base - 3, base + 1).map(({ text }) => text);
  if (paren === "(" && /^[&*]$/.test(mark ?? "") && end === ")") return isType(tokens[base - 4]);
  const before = tokens[base - 1];
  if (!isName(tokens[base]) || before === undefined) return false;
  if (isName(before)) return isType(before);
  // `T* p[2]` and `vec<T, 2> v[2]`, not `a * b[2]` and `a > b[2]`.
  if (/^[*&>]$/.test(before.text)) return !before.spaced && before.spacedAfter;
  return before.text === "," && inDeclaration(tokens, base - 1);
}

/** Whether the comma at `i` parts declarators. */
function inDeclaration(tokens: readonly Token[], i: number): boolean {
  let depth = 0;
  let start = i;
  for (; start > 0; start--) {
    const text = tokens[start - 1]?.text as string;
    if (/^[)\]}]$/.test(text)) depth++;
    else if (/^[([{]$/.test(text)) {
      if (depth === 0) break;
      depth--;
    } else if (depth === 0 && text === ";") break;
  }
  if (/^[([]$/.test(tokens[start - 1]?.text ?? "") && tokens[start - 2]?.text !== "for") return false;
  let type = start;
  while (QUALIFIERS.test(tokens[type]?.text ?? "")) type++;
  if (!isName(tokens[type]) || STATEMENT_WORDS.test(tokens[type]?.text as string)) return false;
  type++;
  while (tokens[type]?.text === "::") type += 2;
  if (tokens[type]?.text === "<" && !tokens[type]?.spaced) while (type < i && tokens[type++]?.text !== ">");
  while (/^[*&]$/.test(tokens[type]?.text ?? "")) type++;
  return isName(tokens[type]);
}

/** Names that the text declares as pointers. */
function pointers(source: string): Set<string> {
  const code = source.replace(/\/\/[^\n]*|\/\*[\s\S]*?\*\//g, "");
  const found = new Set<string>();
  for (const [, name = ""] of code.matchAll(/[\w>]\*\s*(?:const\s+|thread\s+)*([A-Za-z_]\w*)\s*(?=[=;,)]|\[\[)/g))
    found.add(name);
  return found;
}

type Change = readonly [at: number, remove: number, insert: string];

interface Edit {
  kind: MutationKind;
  at: number;
  what: string;
  changes: readonly Change[];
}

const COMPARISONS: Record<string, string> = { "<": "<=", "<=": "<", ">": ">=", ">=": ">" };

/** Every place of the code at which a barrier is, an index is computed or a bound is compared. */
function edits(source: string, pointerNames: ReadonlySet<string>): Edit[] {
  const tokens = tokenize(source);
  const found: Edit[] = [];
  const spelled = (begin: number, end: number) =>
    source
      .slice(tokens[begin]?.at, tokens[end] ? tokens[end].at + tokens[end].text.length : undefined)
      .replace(/\s+/g, " ");
  const end = (i: number) => (tokens[i] as Token).at + (tokens[i] as Token).text.length;
  const plusOne = (from: number, to: number): Change[] => {
    const simple = from === to;
    return [
      [(tokens[from] as Token).at, 0, simple ? "" : "("],
      [end(to), 0, simple ? " + 1" : ") + 1"],
    ];
  };
  /** Arguments of the call whose `(` is at `open`, as first and last token. */
  const callArguments = (open: number): [number, number][] => {
    const close = closing(tokens, open);
    const parts: [number, number][] = [];
    let from = open + 1;
    for (let i = open + 1; i <= close; i++) {
      const text = tokens[i]?.text as string;
      if (i === close || text === ",") {
        if (i > from) parts.push([from, i - 1]);
        from = i + 1;
      } else if (CLOSE[text]) i = closing(tokens, i);
    }
    return parts;
  };
  const isPointer = (i: number) =>
    pointerNames.has(tokens[i]?.text ?? "") && !/^(->|::)$/.test(tokens[i - 1]?.text ?? "");

  for (const [i, token] of tokens.entries()) {
    const next = tokens[i + 1];
    if (/^(threadgroup|simdgroup)_barrier$/.test(token.text) && next?.text === "(") {
      const qualified = tokens[i - 1]?.text === "::";
      const from = (tokens[qualified ? i - 2 : i] as Token).at;
      const changes: Change[] = [[from, end(closing(tokens, i + 1)) - from, ""]];
      found.push({ kind: "barrier", at: token.at, what: `remove ${token.text}`, changes });
    }
    if (token.text === "[" && next?.text !== "]" && i > 0) {
      const before = tokens[i - 1] as Token;
      if ((isName(before) || /^[)\]]$/.test(before.text)) && !isDeclarator(tokens, i)) {
        const close = closing(tokens, i);
        const changes = plusOne(i + 1, close - 1);
        found.push({ kind: "index", at: token.at, what: `${spelled(i - 1, close)} one further`, changes });
      }
    }
    if (isPointer(i) && /^(\+|\+=)$/.test(next?.text ?? "")) {
      const dereferenced = tokens[i - 1]?.text === "*" && !tokens[i - 1]?.spacedAfter;
      const behind = end(i + 1);
      if (!dereferenced)
        found.push({
          kind: "index",
          at: token.at,
          what: `${spelled(i, i + 2)} one further`,
          changes: [[behind, 0, " 1 +"]],
        });
    }
    if (/^simdgroup_(load|store)$/.test(token.text) && next?.text === "(") {
      const [, pointer, , origin] = callArguments(i + 1);
      if (pointer && pointer[0] === pointer[1])
        found.push({
          kind: "index",
          at: token.at,
          what: `${token.text} ${spelled(...pointer)} one further`,
          changes: plusOne(...pointer),
        });
      if (origin && tokens[origin[0] + 1]?.text === "(")
        for (const [k, part] of callArguments(origin[0] + 1).entries())
          found.push({
            kind: "index",
            at: (tokens[origin[0]] as Token).at,
            what: `${token.text} origin ${"xy"[k]} one further`,
            changes: plusOne(...part),
          });
    }
    const other = COMPARISONS[token.text];
    if (other && token.spaced && token.spacedAfter && tokens[i - 1]?.text !== "operator")
      found.push({
        kind: "bound",
        at: token.at,
        what: `${spelled(i - 1, i + 1)} with ${other}`,
        changes: [[token.at, token.text.length, other]],
      });
  }
  return found;
}

function changed(source: string, changes: Edit["changes"]): string {
  let out = source;
  for (const [at, remove, insert] of [...changes].sort((a, b) => b[0] - a[0]))
    out = out.slice(0, at) + insert + out.slice(at + remove);
  return out;
}

/** Mutations of code: a barrier removed, an index moved by one, a bound off by one; `headers` may declare pointers. */
export function mutationsOf(source: string, headers: readonly string[] = []): Mutation[] {
  const names = new Set([source, ...headers].flatMap((text) => [...pointers(text)]));
  const seen = new Map<string, number>();
  return edits(metalLines(source), names).map(({ kind, at, what, changes }) => {
    const line = source.slice(0, at).split("\n").length;
    const key = `${line} ${what}`;
    const count = (seen.get(key) ?? 0) + 1;
    seen.set(key, count);
    return { kind, line, what: count === 1 ? what : `${what} (${count})`, text: changed(source, changes) };
  });
}

/** Bindings of a params header: macros that count from 0 up to the params, and the fault record behind them. */
function bindings(lines: readonly string[]): { name: string; line: number; index: number }[] {
  const found: { name: string; line: number; index: number }[] = [];
  let behind = false;
  for (const [line, text] of lines.entries()) {
    const [, name = "", index = ""] = /^#define (\w+) (\d+)(?:\s|$)/.exec(text) ?? [];
    if (!name) continue;
    if (Number(index) !== found.length || (behind && !name.endsWith("_FAULT"))) break;
    found.push({ name, line, index: found.length });
    if (behind) break;
    behind = name.endsWith("_PARAMS");
  }
  return found;
}

/**
 * A params header that has become stale: two neighboring fields, or two neighboring bindings, have changed places.
 * `used` says whether the kernel's text has a word: what it does not use changes nothing.
 */
export function staleHeaders(header: string, used: (word: string) => boolean): Mutation[] {
  const lines = header.split("\n");
  const found: Mutation[] = [];
  const swapped = (a: number, b: number, kind: MutationKind, what: string, change: (line: string) => string) => {
    const text = lines.map((line, i) => (i === a || i === b ? change(line) : line)).join("\n");
    found.push({ kind, line: a + 1, what, text });
  };
  const compiled = metalLines(header).split("\n");
  const all = bindings(compiled);
  for (const [i, a] of all.entries()) {
    const b = all[i + 1];
    if (!b || !(used(a.name) || used(b.name))) continue;
    swapped(a.line, b.line, "binding", `swap ${a.name} and ${b.name}`, (line) =>
      line.replace(
        /^(#define \w+) \d+/,
        (_, head) => `${head} ${line.startsWith(`#define ${a.name} `) ? b.index : a.index}`,
      ),
    );
  }
  const FIELD = /^ {2}(?<type>uint32_t|int32_t|float) (?<name>\w+);/;
  for (const [i, text] of compiled.entries()) {
    const a = FIELD.exec(text)?.groups;
    const b = FIELD.exec(compiled[i + 1] ?? "")?.groups;
    if (!a || !b || !(used(a.name as string) || used(b.name as string))) continue;
    const [first, second] = [text, lines[i + 1] as string];
    swapped(i, i + 1, "params", `swap ${a.name} and ${b.name}`, (line) => (line === first ? second : first));
  }
  return found;
}
