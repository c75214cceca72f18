import { type Attribute, attributesWithin, opensAttributes, readAttributes } from "./attributes.ts";
import { type Declaration, skipTemplate } from "./declarations.ts";
import { type Refusal, refusal } from "./errors.ts";
import { type Argument, INDICES, type Kernel, POSITIONS, SIMDGROUP_WIDTHS } from "./reflect.ts";
import { closing, closingAngle, isWord, spell, splitCommas, type Token } from "./tokens.ts";

const SPACES = new Set(["device", "constant", "threadgroup", "thread"]);
const IGNORED = new Set(["const", "volatile", "restrict", "__restrict", ...SPACES]);

/** A kernel function, before its instances are known. */
interface Definition {
  arguments: Argument[];
  /** Names and defaults of template parameters; empty for a plain function. */
  template: { name: string; fallback: string }[];
  maxThreads?: number;
}

export interface KernelSet {
  kernels: Kernel[];
  /** Declarations that only instantiate: they are dropped from the text. */
  instantiations: Declaration[];
  /** Bodies in which threadgroup variables may be declared. */
  bodies: { open: number; close: number }[];
}

const integer = (text: string) => (/^(0[xX][\da-fA-F]+|\d+)[uU]?$/.test(text) ? Number(text.replace(/[uU]$/, "")) : -1);

/** The string of adjacent literals. */
const literal = (text: string) => [...text.matchAll(/"((?:\\.|[^"\\])*)"/g)].map((match) => match[1]).join("");

/** Finds the kernels of the text, their parameters and instances. */
export function findKernels(tokens: readonly Token[], all: readonly Declaration[], refusals: Refusal[]): KernelSet {
  const set: KernelSet = { kernels: [], instantiations: [], bodies: [] };
  const definitions = new Map<string, Definition>();
  const refuse = (at: Token | Attribute, construct: string, reason: string) =>
    void refusals.push(refusal(at, construct, reason));

  const instantiation = ({ begin, body }: Declaration) =>
    !body && tokens[begin]?.text === "template" && tokens[begin + 1]?.text !== "<";

  for (const declaration of all) {
    const { begin, end, body, namespace } = declaration;
    const attributes = attributesWithin(tokens, begin, end);
    const isKernel =
      attributes.some(({ name }) => name === "kernel") ||
      spellsKernel(tokens, begin, end) ||
      (instantiation(declaration) && attributes.some(({ name }) => name === "host_name"));
    if (!isKernel) continue;
    const first = tokens[begin] as Token;
    const hostName = attributes.find(({ name }) => name === "host_name");
    if (instantiation(declaration)) {
      set.instantiations.push(declaration);
      const callee = calleeOf(tokens, begin, end);
      const base = callee?.slice(0, callee.indexOf("<"));
      const definition = callee && base ? (definitions.get(namespace + base) ?? definitions.get(base)) : undefined;
      if (!callee || !definition) {
        refuse(first, spell(tokens, begin, end), "does not name an instance of a kernel template");
        continue;
      }
      if (!hostName) {
        refuse(first, callee, "has no [[host_name(…)]], so nothing can find it");
        continue;
      }
      const values = templateArguments(callee);
      const substitute = (type: string) =>
        type.replace(/[A-Za-z_]\w*/g, (word) => {
          const i = definition.template.findIndex(({ name }) => name === word);
          return i < 0 ? word : (values[i] ?? (definition.template[i]?.fallback || word));
        });
      set.kernels.push({
        name: literal(hostName.value),
        callee: `::${definitions.has(namespace + base) ? namespace : ""}${callee}`,
        arguments: definition.arguments.map((a) => ({ ...a, type: substitute(a.type) })),
        ...(definition.maxThreads !== undefined && { maxThreads: definition.maxThreads }),
        file: first.file,
        line: first.line,
      });
      continue;
    }
    if (body) set.bodies.push(body);
    const paren = parameterList(tokens, begin, end);
    const nameToken = tokens[paren - 1];
    if (paren < 0 || !isWord(nameToken) || tokens[paren - 2]?.text !== "void") {
      refuse(
        first,
        spell(tokens, begin, Math.min(end, begin + 8)),
        "is not a kernel: `kernel void name(…)` is expected",
      );
      continue;
    }
    if (!body) continue;
    const definition: Definition = {
      arguments: readParameters(tokens, paren, refuse),
      template: templateParameters(tokens, begin),
    };
    const limit = attributes.find(({ name }) => name === "max_total_threads_per_threadgroup");
    if (limit) {
      definition.maxThreads = integer(limit.value);
      if (definition.maxThreads < 1) refuse(limit, limit.text, "must give a literal number");
    }
    definitions.set(namespace + nameToken.text, definition);
    if (skipTemplate(tokens, begin) > begin) {
      if (hostName) refuse(hostName, hostName.text, "stands at a template; it belongs at its instances");
      continue;
    }
    set.kernels.push({
      name: hostName ? literal(hostName.value) : nameToken.text,
      callee: `::${namespace}${nameToken.text}`,
      arguments: definition.arguments,
      ...(definition.maxThreads !== undefined && { maxThreads: definition.maxThreads }),
      file: nameToken.file,
      line: nameToken.line,
    });
  }
  const names = new Map<string, Kernel>();
  for (const kernel of set.kernels) {
    const earlier = names.get(kernel.name);
    if (earlier)
      refusals.push(refusal(kernel, kernel.name, `names a second kernel; the first is at line ${earlier.line}`));
    names.set(kernel.name, kernel);
  }
  return set;
}

/** The word `kernel` among a declaration's specifiers. */
function spellsKernel(tokens: readonly Token[], begin: number, end: number): boolean {
  for (let i = skipTemplate(tokens, begin); i < end; i++) {
    const text = tokens[i]?.text;
    if (text === "kernel") return true;
    if (text === "[") i = Math.max(i, closing(tokens, i));
    else if (text === "(" || text === "=") return false;
  }
  return false;
}

/** Index of the `(` of a function's parameters; -1 if there is none. */
function parameterList(tokens: readonly Token[], begin: number, end: number): number {
  for (let i = skipTemplate(tokens, begin); i < end; i++) {
    if (tokens[i]?.text === "[") i = Math.max(i, closing(tokens, i));
    else if (tokens[i]?.text === "(") return i;
  }
  return -1;
}

/** `f<A, B>` of `template … void f<A, B>(…)` or `template … decltype(f<A, B>) f<A, B>`. */
function calleeOf(tokens: readonly Token[], begin: number, end: number): string | undefined {
  let i = begin + 1;
  while (i < end && (tokens[i]?.text === "kernel" || opensAttributes(tokens, i)))
    i = opensAttributes(tokens, i) ? readAttributes(tokens, i).end : i + 1;
  if (tokens[i]?.text === "decltype") i = closing(tokens, i + 1) + 1;
  else if (tokens[i]?.text === "void") i++;
  else return undefined;
  const from = i;
  while (i < end && tokens[i]?.text !== "<") i++;
  const close = i < end ? closingAngle(tokens, i) : -1;
  return close > 0 ? spell(tokens, from, close + 1) : undefined;
}

function templateArguments(callee: string): string[] {
  const inner = callee.slice(callee.indexOf("<") + 1, -1);
  const parts: string[] = [];
  let depth = 0;
  let from = 0;
  for (const [i, c] of [...inner].entries()) {
    if ("<([".includes(c)) depth++;
    else if (">)]".includes(c)) depth--;
    else if (c === "," && depth === 0) {
      parts.push(inner.slice(from, i).trim());
      from = i + 1;
    }
  }
  parts.push(inner.slice(from).trim());
  return parts;
}

function templateParameters(tokens: readonly Token[], begin: number): Definition["template"] {
  if (tokens[begin]?.text !== "template" || tokens[begin + 1]?.text !== "<") return [];
  const close = closingAngle(tokens, begin + 1);
  return splitCommas(tokens, begin + 2, close).map(([from, to]) => {
    let equals = from;
    while (equals < to && tokens[equals]?.text !== "=") equals++;
    const name = tokens[equals - 1];
    return { name: isWord(name) ? name.text : "", fallback: equals < to ? spell(tokens, equals + 1, to) : "" };
  });
}

type Refuse = (at: Token | Attribute, construct: string, reason: string) => void;

function readParameters(tokens: readonly Token[], paren: number, refuse: Refuse): Argument[] {
  const found: Argument[] = [];
  const taken = new Map<string, string>();
  for (const [begin, end] of splitCommas(tokens, paren + 1, closing(tokens, paren))) {
    const first = tokens[begin] as Token;
    let stop = begin;
    while (stop < end && !opensAttributes(tokens, stop)) stop++;
    const written = spell(tokens, begin, stop);
    const attributes = attributesWithin(tokens, stop, end);
    const name = tokens[stop - 1];
    if (attributes.length === 0) {
      refuse(first, written, "has no attribute: [[buffer(n)]], [[threadgroup(n)]] or a builtin is expected");
      continue;
    }
    const attribute = attributes[0] as Attribute;
    if (attributes.length > 1 || !isWord(name) || stop - begin < 2) {
      refuse(first, spell(tokens, begin, end), "is not understood as a kernel's parameter");
      continue;
    }
    const words: string[] = [];
    const spaces: string[] = [];
    let indirection = "";
    let readOnly = false;
    let odd = false;
    for (let i = begin; i < stop - 1; i++) {
      const { text } = tokens[i] as Token;
      if (SPACES.has(text)) spaces.push(text);
      if (text === "*" || text === "&") indirection += text;
      else if (text === "const" && indirection === "") readOnly = true;
      else if (text === "(" || text === "[") odd = true;
      if (!IGNORED.has(text) && text !== "*" && text !== "&")
        words.push((words.length > 0 && (tokens[i] as Token).before && isWord(tokens[i]) ? " " : "") + text);
    }
    const base = { name: name.text, attribute: attribute.text, type: words.join("") };
    if (POSITIONS.has(attribute.name) || INDICES.has(attribute.name) || SIMDGROUP_WIDTHS.has(attribute.name)) {
      if (indirection || odd || (spaces.length > 0 && spaces[0] !== "thread"))
        refuse(first, written, `must be a value: it is [[${attribute.text}]]`);
      found.push({ ...base, kind: "builtin" });
      continue;
    }
    if (attribute.name !== "buffer" && attribute.name !== "threadgroup") {
      refuse(attribute, `[[${attribute.text}]]`, "is not simulated");
      continue;
    }
    const index = integer(attribute.value);
    if (index < 0 || index > 30) {
      refuse(attribute, `[[${attribute.text}]]`, "must have a literal index from 0 to 30");
      continue;
    }
    const space = spaces[0];
    const fits = attribute.name === "buffer" ? space === "device" || space === "constant" : space === "threadgroup";
    if (spaces.length !== 1 || !fits || !/^[*&]$/.test(indirection) || odd) {
      const expected = attribute.name === "buffer" ? "device or constant" : "threadgroup";
      refuse(first, written, `must be a pointer or reference to ${expected} memory: it is [[${attribute.text}]]`);
      continue;
    }
    const earlier = taken.get(attribute.text);
    if (earlier) refuse(attribute, `[[${attribute.text}]]`, `is taken by \`${earlier}\``);
    taken.set(attribute.text, name.text);
    found.push({
      ...base,
      kind: attribute.name,
      index,
      space: space as "device" | "constant" | "threadgroup",
      readOnly: readOnly || space === "constant",
      indirection: indirection === "*" ? "pointer" : "reference",
    });
  }
  return found;
}
