// Compares our declarations of Foundation and Metal with published ones (the npm package @nativescript/macos-node-api,
// generated from Apple's SDK): names, argument counts and enum values. check-metal-api.mjs is the command.
import { readFileSync } from "node:fs";
import { join } from "node:path";

const OURS = ["Foundation", "Metal"];
/** Parts of the runtime and of the simulation, not of an API. */
const SKIPPED = new Set(["NSObject", "NSConstantString", "NSAutoreleasePool"]);

export interface Api {
  /** `Type.member` to its number of arguments; a property has 0, its setter 1. */
  members: Map<string, number>;
  /** Enum name to its constants. */
  enums: Map<string, Map<string, number>>;
  functions: Map<string, number>;
}

const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

/** The text without anything in (nested) parentheses. */
function outside(text: string): string {
  let depth = 0;
  let out = "";
  for (const char of text) {
    if (char === "(") depth++;
    if (depth === 0) out += char;
    if (char === ")") depth--;
  }
  return out;
}

function argumentCount(text: string): number {
  if (text.trim() === "" || text.trim() === "void") return 0;
  let depth = 0;
  let count = 1;
  for (const char of text.replaceAll("=>", "")) {
    if ("(<[{".includes(char)) depth++;
    if (")>]}".includes(char)) depth--;
    if (char === "," && depth === 0) count++;
  }
  return count;
}

/** `(3 << 16) + 1`, `2 << 4`, `7`. */
function constant(text: string): number {
  const found = /^\(?(\d+)(?:\s*<<\s*(\d+))?\)?(?:\s*\+\s*(\d+))?$/.exec(text.trim());
  if (!found) throw new Error(`not a constant: ${text}`);
  return Number(found[1]) * 2 ** Number(found[2] ?? 0) + Number(found[3] ?? 0);
}

/** What a header of ours declares, in the names that JavaScript bindings give: `setBuffer:offset:` is `setBufferOffset`. */
export function readHeader(text: string): Api {
  const source = text.replaceAll(/\/\/.*$/gm, "").replaceAll(/\b(_Nullable|_Nonnull|__autoreleasing)\b/g, "");
  const api: Api = { members: new Map(), enums: new Map(), functions: new Map() };
  for (const [, name, body] of source.matchAll(/NS_(?:ENUM|OPTIONS)\(\w+, (\w+)\)\s*\{([^}]*)\}/g)) {
    const values = new Map<string, number>();
    let next = 0;
    for (const entry of (body as string).split(",").filter((part) => part.trim() !== "")) {
      const [key, value] = entry.split("=") as [string, string | undefined];
      next = value === undefined ? next : constant(value);
      values.set(key.trim(), next++);
    }
    api.enums.set(name as string, values);
  }
  for (const [, name, body] of source.matchAll(/@(?:interface|protocol) (\w+)\b(?![\w\s,]*;)([\s\S]*?)@end/g)) {
    if (SKIPPED.has(name as string)) continue;
    for (const [, attributes, declaration] of (body as string).matchAll(/@property\(([^)]*)\)([^;]*);/g)) {
      const property = /(\w+)\s*$/.exec(declaration as string)?.[1] as string;
      api.members.set(`${name}.${property}`, 0);
      if (!/\breadonly\b/.test(attributes as string)) api.members.set(`${name}.set${capital(property)}`, 1);
    }
    for (const [, method] of (body as string).matchAll(/^\s*[-+]\s*(\([\s\S]*?);/gm)) {
      const plain = outside(method as string).trim();
      const parts = [...plain.matchAll(/(\w+):/g)].map((part) => part[1] as string);
      const [first = plain, ...rest] = parts;
      api.members.set(`${name}.${first}${rest.map(capital).join("")}`, parts.length);
    }
  }
  for (const [, name, parameters] of source.matchAll(/extern "C"[^;]*?\b(\w+)\(([^;()]*)\)/g))
    if (/^(MTL|NS)/.test(name as string)) api.functions.set(name as string, argumentCount(parameters as string));
  return api;
}

/** What a file of published declarations has. */
export function readDeclarations(text: string): Api {
  const api: Api = { members: new Map(), enums: new Map(), functions: new Map() };
  for (const [, name, body] of text.matchAll(/^declare (?:interface|class) (\w+)[^{]*\{(.*?)^\}/gms))
    for (const line of (body as string).split("\n")) {
      const found =
        /^ {2}((?:static |readonly )*)(\w+)\??(?:<This [^>]*=> any>)?(\((?:this: This(?:, )?)?(.*)\))?: .*;$/.exec(
          line,
        );
      if (!found) continue;
      const [, modifiers, member, parameters, list] = found as unknown as [string, string, string, string, string];
      api.members.set(`${name}.${member}`, parameters === undefined ? 0 : argumentCount(list));
      if (parameters === undefined && !modifiers.includes("readonly"))
        api.members.set(`${name}.set${capital(member)}`, 1);
    }
  for (const [, name, body] of text.matchAll(/^declare const (\w+): \{(.*?)^\};/gms))
    api.enums.set(
      name as string,
      new Map(
        [...(body as string).matchAll(/(\w+): (-?\d+)/g)].map(([, key, value]) => [key as string, Number(value)]),
      ),
    );
  for (const [, name, parameters] of text.matchAll(/^declare function (\w+)\((.*)\): .*;$/gm))
    api.functions.set(name as string, argumentCount(parameters as string));
  return api;
}

/** The value of a constant: published keys lack the part of the constant that the enum's name begins with. */
function publishedValue(published: Api, type: string, name: string): number | undefined {
  for (const [key, value] of published.enums.get(type) ?? []) {
    const end = key.replace(/^_/, "");
    if (name.endsWith(end) && type.startsWith(name.slice(0, name.length - end.length))) return value;
  }
  return undefined;
}

/** What we declare otherwise than it is published, a line for each, and how much was compared. */
export function compareApis(ours: Api, published: Api): { compared: number; differences: string[] } {
  const differences: string[] = [];
  for (const [name, count] of ours.members) {
    const theirs = published.members.get(name);
    if (theirs !== count) differences.push(`${name}: ${count} arguments, published ${theirs ?? "not at all"}`);
  }
  for (const [name, count] of ours.functions) {
    const theirs = published.functions.get(name);
    if (theirs !== count) differences.push(`${name}(): ${count} arguments, published ${theirs ?? "not at all"}`);
  }
  let constants = 0;
  for (const [type, values] of ours.enums)
    for (const [name, value] of values) {
      constants++;
      const theirs = publishedValue(published, type, name);
      if (theirs !== value) differences.push(`${name}: ${value}, published ${theirs ?? "not at all"}`);
    }
  return { compared: ours.members.size + ours.functions.size + constants, differences };
}

/** The headers in `headers` against the package at `folder`. */
export function checkMetalApi(headers: string, folder: string): { compared: number; differences: string[] } {
  const results = OURS.map((name) =>
    compareApis(
      readHeader(readFileSync(join(headers, name, `${name}.h`), "utf8")),
      readDeclarations(readFileSync(join(folder, "types", `${name}.d.ts`), "utf8")),
    ),
  );
  return {
    compared: results.reduce((sum, { compared }) => sum + compared, 0),
    differences: results.flatMap(({ differences }) => differences),
  };
}
