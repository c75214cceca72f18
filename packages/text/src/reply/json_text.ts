const MAX_DEPTH = 256;
/** What JSON has outside strings, besides brackets and quotes. */
const JSON_UNIT = /[\w\s,:.+-]/;

/** Follows an object of JSON in a stream, until its last bracket. What is between brackets, `JSON.parse` checks later. */
export class JsonObjectReader {
  private readonly brackets: string[] = [];
  private inString = false;
  private escaped = false;

  /** `done` with the last bracket, `wrong` when no following text can make it JSON. */
  push(unit: string): "open" | "done" | "wrong" {
    if (this.inString) {
      if (unit < " ") return "wrong";
      if (this.escaped) this.escaped = false;
      else if (unit === "\\") this.escaped = true;
      else if (unit === '"') this.inString = false;
      return "open";
    }
    if (this.brackets.length === 0 && unit !== "{") return "wrong";
    if (unit === '"') this.inString = true;
    else if (unit === "{" || unit === "[") {
      if (this.brackets.length === MAX_DEPTH) return "wrong";
      this.brackets.push(unit === "{" ? "}" : "]");
    } else if (unit === "}" || unit === "]") {
      if (this.brackets.pop() !== unit) return "wrong";
      if (this.brackets.length === 0) return "done";
    } else if (!JSON_UNIT.test(unit)) return "wrong";
    return "open";
  }
}

/** Whether a text is JSON, and which value it is. */
export function parseJson(text: string): { value: unknown } | undefined {
  try {
    return { value: JSON.parse(text) };
  } catch {
    return undefined;
  }
}

/** Whether a text is a JSON object that ends with its last bracket. */
export function isJsonObject(text: string): boolean {
  const value = parseJson(text)?.value;
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

/**
 * The members of an object of valid JSON, as they are written: numbers keep all digits. Undefined when a key comes twice.
 */
export function jsonMembers(text: string): Map<string, string> | undefined {
  const members = new Map<string, string>();
  let depth = 0;
  let key: string | undefined;
  let begin = 0;
  for (let at = 0; at < text.length; at++) {
    const unit = text[at];
    if (unit === '"') {
      const start = at;
      for (at++; text[at] !== '"'; at++) if (text[at] === "\\") at++;
      if (depth === 1 && key === undefined) key = JSON.parse(text.slice(start, at + 1)) as string;
    } else if (unit === ":" && depth === 1) begin = at + 1;
    else if (unit === "{" || unit === "[") depth++;
    else if (unit === "}" || unit === "]" || unit === ",") {
      if (depth === 1 && key !== undefined) {
        if (members.has(key)) return undefined;
        members.set(key, text.slice(begin, at).trim());
        key = undefined;
      }
      if (unit !== ",") depth--;
    }
  }
  return members;
}
