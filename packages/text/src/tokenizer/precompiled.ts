import type { StepFields } from "./step_fields.ts";
import type { Work } from "./work.ts";

/** A grapheme of fewer bytes is looked up as a whole, before its characters. */
const MAX_GRAPHEME_BYTES = 6;
const MAX_BYTES = 1 << 23;

/** A double array, as Darts builds it: finds the shortest of its keys that some bytes begin with. */
class DoubleArray {
  private readonly units: Uint32Array;

  constructor(units: Uint32Array) {
    this.units = units;
  }

  /** The value of the shortest key that `bytes` begin with. */
  find(bytes: Uint8Array): number | undefined {
    const { units } = this;
    let node = 0;
    let unit = units[0] ?? 0;
    node ^= offsetOf(unit);
    for (const byte of bytes) {
      if (byte === 0) return undefined;
      node ^= byte;
      unit = units[node] ?? 0;
      // Labels are a byte, and a bit that leaves have.
      if ((unit & 0x800000ff) >>> 0 !== byte) return undefined;
      node ^= offsetOf(unit);
      if (((unit >>> 8) & 1) === 1) return (units[node] ?? 0) & 0x7fffffff;
    }
    return undefined;
  }
}

const offsetOf = (unit: number) => ((unit >>> 10) << ((unit & 0x200) >>> 6)) >>> 0;

function bytesOfBase64(text: string): Uint8Array {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

/** The rules of a SentencePiece model: a double array of texts, and the texts to put in their places. */
export function readPrecompiled(fields: StepFields): (text: string, work: Work) => string {
  const encoded = fields.raw("precompiled_charsmap") ?? "";
  if (typeof encoded !== "string" || encoded.length > MAX_BYTES)
    throw fields.refuse(`be a text in base64 of at most ${MAX_BYTES} characters`, "precompiled_charsmap");
  let bytes: Uint8Array;
  try {
    bytes = bytesOfBase64(encoded);
  } catch {
    throw fields.refuse("be a text in base64", "precompiled_charsmap");
  }
  const view = new DataView(bytes.buffer);
  const size = bytes.length < 4 ? -1 : view.getUint32(0, true);
  if (size < 0 || size % 4 !== 0 || 4 + size > bytes.length)
    throw fields.refuse("hold a table of the size that it begins with", "precompiled_charsmap");
  const units = new Uint32Array(size / 4);
  for (let at = 0; at < units.length; at++) units[at] = view.getUint32(4 + 4 * at, true);
  const rules = new DoubleArray(units);
  const texts = bytes.subarray(4 + size);
  const encoder = new TextEncoder();
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  const known = new Map<string, string | undefined>();
  const MAX_KNOWN = 1 << 14;

  const find = (text: string): string | undefined => {
    if (known.has(text)) return known.get(text);
    const index = rules.find(encoder.encode(text));
    let found: string | undefined;
    if (index !== undefined && index <= texts.length) {
      const end = texts.indexOf(0, index);
      found = decoder.decode(texts.subarray(index, end < 0 ? texts.length : end));
    }
    if (known.size < MAX_KNOWN) known.set(text, found);
    return found;
  };
  const segmenter = new Intl.Segmenter("en", { granularity: "grapheme" });
  const isShort = (text: string) => encoder.encode(text).length < MAX_GRAPHEME_BYTES;

  return (text, work) => {
    let changed = "";
    for (const { segment } of segmenter.segment(text)) {
      work.spend(8);
      const whole = segment.length < MAX_GRAPHEME_BYTES && isShort(segment) ? find(segment) : undefined;
      if (whole !== undefined) changed += whole;
      else for (const char of segment) changed += find(char) ?? char;
    }
    work.spend(changed.length);
    return changed;
  };
}
