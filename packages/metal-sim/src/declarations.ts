import { closing, closingAngle, spell, type Token } from "./tokens.ts";

/** A declaration at namespace scope. */
export interface Declaration {
  /** Tokens before the body or the `;`. */
  begin: number;
  end: number;
  /** Braces of a function's body. */
  body?: { open: number; close: number };
  /** `a::b::` of the namespaces around it, or "". */
  namespace: string;
  kind: "function" | "type" | "variable" | "other";
}

const OTHER = new Set(["using", "typedef", "static_assert", "extern", "friend", ";", "#"]);
const TYPES = new Set(["struct", "class", "union", "enum"]);

/** Skips `template <…>` and attributes at the start of a declaration. */
export function skipTemplate(tokens: readonly Token[], begin: number): number {
  let i = begin;
  while (tokens[i]?.text === "template" && tokens[i + 1]?.text === "<") {
    const close = closingAngle(tokens, i + 1);
    if (close < 0) break;
    i = close + 1;
  }
  return i;
}

function classify(tokens: readonly Token[], begin: number, end: number, hasBody: boolean): Declaration["kind"] {
  const i = skipTemplate(tokens, begin);
  if (i > begin && tokens[i]?.text === "using") return "other";
  if (OTHER.has(tokens[begin]?.text ?? ";")) return "other";
  let sawType = false;
  for (let k = i; k < end; k++) {
    const text = tokens[k]?.text ?? "";
    if (text === "(") return "function";
    if (text === "=") return "variable";
    if (text === "<") {
      const close = closingAngle(tokens, k);
      if (close > 0) k = close;
    } else if (text === "[") {
      const close = closing(tokens, k);
      if (close > 0) k = close;
    } else if (text === "operator") return "function";
    else if (TYPES.has(text)) sawType = true;
  }
  if (sawType) return hasBody || end - i <= 3 ? "type" : "variable";
  return end > begin ? "variable" : "other";
}

/** The declarations of [begin, end), those of namespaces and linkage blocks included. */
export function declarations(tokens: readonly Token[], begin = 0, end = tokens.length, namespace = ""): Declaration[] {
  const found: Declaration[] = [];
  for (let i = begin; i < end; ) {
    const start = i;
    let open = -1;
    for (; i < end; i++) {
      const text = tokens[i]?.text ?? "";
      if (text === ";") break;
      if (text === "{") {
        open = i;
        break;
      }
      if (text === "(" || text === "[") {
        const close = closing(tokens, i);
        if (close > 0) i = close;
      }
    }
    if (open < 0) {
      if (i > start) found.push({ begin: start, end: i, namespace, kind: classify(tokens, start, i, false) });
      i++;
      continue;
    }
    const close = closing(tokens, open);
    const last = close < 0 ? end : close;
    const first = tokens[start]?.text;
    if (first === "namespace" || (first === "inline" && tokens[start + 1]?.text === "namespace")) {
      const name = spell(tokens, start + (first === "inline" ? 2 : 1), open);
      found.push(...declarations(tokens, open + 1, last, name ? `${namespace}${name}::` : namespace));
      i = last + 1;
      continue;
    }
    if (first === "extern" && open === start + 2) {
      found.push(...declarations(tokens, open + 1, last, namespace));
      i = last + 1;
      continue;
    }
    const kind = classify(tokens, start, open, true);
    if (kind === "function") {
      found.push({ begin: start, end: open, body: { open, close: last }, namespace, kind });
      i = last + 1;
      continue;
    }
    // A type's members or an initializer; declarators may follow.
    let stop = last + 1;
    while (stop < end && tokens[stop]?.text !== ";") {
      const bracket = ["(", "[", "{"].includes(tokens[stop]?.text ?? "") ? closing(tokens, stop) : -1;
      stop = bracket > 0 ? bracket + 1 : stop + 1;
    }
    found.push({ begin: start, end: kind === "type" ? open : stop, namespace, kind });
    i = stop + 1;
  }
  return found;
}
