const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;
const OPENING = { object: 0x7b, array: 0x5b };
const CLOSING = { object: 0x7d, array: 0x5d };
const isSpace = (byte: number | undefined) => byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;

/**
 * The first name that occurs twice in one object of a JSON text, which `JSON.parse` does not report; "too deep" when the
 * text is nested deeper than `maxDepth`. For text that is not JSON the result has no meaning: `JSON.parse` then throws.
 */
export function duplicateName(text: Uint8Array, maxDepth: number): { name: string } | "too deep" | undefined {
  const names: (Set<string> | undefined)[] = [];
  const decoder = new TextDecoder();
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    const byte = text[i];
    if (byte === OPENING.object || byte === OPENING.array) {
      if (++depth > maxDepth) return "too deep";
      names[depth] = byte === OPENING.object ? new Set() : undefined;
    } else if (byte === CLOSING.object || byte === CLOSING.array) {
      if (--depth < 0) return undefined;
    } else if (byte === QUOTE) {
      const begin = i++;
      while (i < text.length && text[i] !== QUOTE) i += text[i] === BACKSLASH ? 2 : 1;
      let next = i + 1;
      while (isSpace(text[next])) next++;
      if (text[next] !== COLON) continue;
      let name: unknown;
      try {
        name = JSON.parse(decoder.decode(text.subarray(begin, i + 1)));
      } catch {
        return undefined;
      }
      const seen = names[depth];
      if (typeof name !== "string" || !seen) return undefined;
      if (seen.has(name)) return { name };
      seen.add(name);
    }
  }
  return undefined;
}
