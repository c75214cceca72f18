import type { Declaration } from "./declarations.ts";
import { type Refusal, refusal } from "./errors.ts";
import { closing, closingAngle, isWord, spell, type Token } from "./tokens.ts";

/** What an address space qualifies. */
type Use =
  | { kind: "indirection" }
  /** A variable: its type is [begin, name). */
  | { kind: "variable"; name: number }
  | { kind: "unknown" };

/** Looks forward from a qualifier to a `*` or `&`, or to a declarator's name. */
function useOf(tokens: readonly Token[], at: number): Use {
  let lastWord = -1;
  let words = 0;
  for (let i = at + 1; i < tokens.length; i++) {
    const token = tokens[i] as Token;
    const { text } = token;
    if (text === "*" || text === "&" || text === "&&") return { kind: "indirection" };
    if (text === "(" && ["*", "&"].includes(tokens[i + 1]?.text ?? "")) return { kind: "indirection" };
    if (text === "<") {
      const close = closingAngle(tokens, i);
      if (close < 0) return { kind: "unknown" };
      i = close;
    } else if (isWord(token)) {
      lastWord = i;
      words++;
    } else if (text !== "::")
      return words >= 2 && lastWord === i - 1 && ["[", ";", ",", "=", "{"].includes(text)
        ? { kind: "variable", name: lastWord }
        : { kind: "unknown" };
  }
  return { kind: "unknown" };
}

export interface Dialect {
  /** Replacements of the qualifiers. */
  words: Record<"device" | "constant" | "thread" | "threadgroup", string>;
  /** A threadgroup variable's declaration becomes `Type (&name)[n] = <this>`. */
  variable(type: string, name: string, declaration: number): string;
  /** What stands before a reference to a threadgroup variable's type. */
  reference: string;
  /** A constant at file scope is `static const`. */
  staticConstants: boolean;
}

export const VARIABLE_STORAGE = "::metal_sim::threadgroup_variable";

export const CPU: Dialect = {
  words: { device: "", constant: "const", thread: "", threadgroup: "" },
  variable: (type, name, declaration) => `${VARIABLE_STORAGE}<${type}, ${declaration}>("${name}")`,
  reference: "",
  staticConstants: true,
};

/** Refused afterwards where a kernel has threadgroup variables. */
export const CUDA: Dialect = { ...CPU, variable: () => VARIABLE_STORAGE };

export const OPENCL: Dialect = {
  words: { device: "__global", constant: "__constant", thread: "__private", threadgroup: "__local" },
  variable: (type) => `${VARIABLE_STORAGE}<${type}>()`,
  reference: "__local",
  staticConstants: false,
};

/** Replaces address spaces in place; refuses every use that it cannot classify. */
export function replaceAddressSpaces(
  tokens: readonly Token[],
  all: readonly Declaration[],
  kernelBodies: readonly { open: number; close: number }[],
  dialect: Dialect,
  refusals: Refusal[],
): void {
  const refuse = (token: Token, construct: string, reason: string) =>
    void refusals.push(refusal(token, construct, reason));
  const inside = (ranges: readonly { open: number; close: number }[], i: number) =>
    ranges.some(({ open, close }) => i > open && i < close);
  const bodies = all.flatMap(({ body }) => (body ? [body] : []));
  const variables = all.filter(({ kind }) => kind === "variable");

  for (const { begin, end } of variables) {
    const head = tokens.slice(begin, end);
    if (!head.some(({ text }) => text === "constant" || text === "threadgroup" || text === "template"))
      refuse(
        tokens[begin] as Token,
        spell(tokens, begin, Math.min(end, begin + 6)),
        "is a variable at file scope: those must be `constant`",
      );
  }

  let declared = 0;
  for (let i = 0; i < tokens.length; i++) {
    const token = tokens[i] as Token;
    const { text } = token;
    if (text === "static" && inside(bodies, i) && tokens[i + 1]?.text !== "constexpr") {
      refuse(token, "static", "variables in functions do not exist in MSL");
      continue;
    }
    if (text !== "device" && text !== "constant" && text !== "thread" && text !== "threadgroup") continue;
    if (tokens[i - 1]?.text === "*" || tokens[i - 1]?.text === "&") {
      // `thread` may qualify the pointer itself, or a member function.
      if (text !== "thread")
        refuse(token, text, `behind \`${tokens[i - 1]?.text}\` would place the pointer itself there`);
      else token.text = dialect.words.thread;
      continue;
    }
    const use = useOf(tokens, i);
    if (text === "thread" || use.kind === "indirection") {
      token.text = dialect.words[text];
      continue;
    }
    const rest = spell(tokens, i, Math.min(tokens.length, i + 4));
    if (text === "constant") {
      if (inside(bodies, i)) refuse(token, rest, "is a constant variable in a function: those stand at file scope");
      const scope = variables.find(({ begin, end }) => i >= begin && i < end);
      const isStatic = scope && tokens.slice(scope.begin, i).some((t) => t.text === "static");
      token.text = dialect.staticConstants && scope && !isStatic ? "static const" : dialect.words.constant;
      continue;
    }
    if (text === "device" || use.kind === "unknown") {
      refuse(token, rest, "cannot be classified: a pointer, a reference or a plain variable is expected");
      continue;
    }
    if (!inside(kernelBodies, i)) {
      refuse(token, rest, "is a threadgroup variable outside a kernel's body");
      continue;
    }
    if (!/[;{}]$/.test(tokens[i - 1]?.text ?? "")) {
      refuse(token, rest, "cannot be classified: the declaration must start with `threadgroup`");
      continue;
    }
    declared = declareVariables(tokens, i, use.name, declared, dialect, refuse);
  }
}

/** `threadgroup T a[n], b;` → references to storage that the threadgroup shares. */
function declareVariables(
  tokens: readonly Token[],
  at: number,
  firstName: number,
  declared: number,
  dialect: Dialect,
  refuse: (token: Token, construct: string, reason: string) => void,
): number {
  const type = spell(tokens, at + 1, firstName);
  (tokens[at] as Token).text = dialect.reference;
  let count = declared;
  for (let name = firstName; ; ) {
    const nameToken = tokens[name] as Token;
    let i = name + 1;
    while (tokens[i]?.text === "[") i = closing(tokens, i) + 1;
    const separator = tokens[i] as Token;
    if (!isWord(nameToken) || (separator?.text !== ";" && separator?.text !== ",")) {
      refuse(nameToken, `threadgroup ${type} ${nameToken.text}`, "must be declared without an initializer");
      return count;
    }
    const storage = dialect.variable(`${type}${spell(tokens, name + 1, i)}`, nameToken.text, count++);
    const last = separator.text === ";";
    nameToken.text = `(&${nameToken.text})`;
    separator.text = ` = ${storage};${last ? "" : ` ${dialect.reference} ${type}`}`;
    if (last) return count;
    name = i + 1;
  }
}
