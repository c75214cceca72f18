/** The character that stands for each byte: printable ones for themselves, others from U+0100 on. */
export const BYTE_CHARACTERS: readonly string[] = (() => {
  const characters: string[] = [];
  let next = 0x100;
  for (let byte = 0; byte < 256; byte++) {
    const printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    characters.push(String.fromCharCode(printable ? byte : next++));
  }
  return characters;
})();

/** The byte that a character stands for, by its code; −1 for others. */
export const BYTE_OF_CHARACTER: Int16Array = (() => {
  const bytes = new Int16Array(0x180).fill(-1);
  for (const [byte, character] of BYTE_CHARACTERS.entries()) bytes[character.charCodeAt(0)] = byte;
  return bytes;
})();

const encoder = new TextEncoder();
let buffer = new Uint8Array(1024);

/** The bytes of a text in UTF-8. They are valid until the next call. */
export function utf8Of(text: string): Uint8Array {
  if (buffer.length < 3 * text.length) buffer = new Uint8Array(4 * text.length);
  const { length } = text;
  // Short texts of ASCII, which most words are, take a tenth of the time this way.
  for (let at = 0; at < length; at++) {
    const unit = text.charCodeAt(at);
    if (unit > 0x7f) return buffer.subarray(0, encoder.encodeInto(text, buffer).written);
    buffer[at] = unit;
  }
  return buffer.subarray(0, length);
}

const CODES = Uint16Array.from(BYTE_CHARACTERS, (character) => character.charCodeAt(0));
const CHUNK = 4096;

/** A text with the characters that stand for its bytes. */
export function toByteCharacters(text: string): string {
  const bytes = utf8Of(text);
  const codes = Uint16Array.from(bytes, (byte) => CODES[byte] as number);
  if (codes.length <= CHUNK) return String.fromCharCode(...codes);
  const parts: string[] = [];
  for (let at = 0; at < codes.length; at += CHUNK) parts.push(String.fromCharCode(...codes.subarray(at, at + CHUNK)));
  return parts.join("");
}
