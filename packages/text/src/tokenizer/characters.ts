/** Tests of characters, as the `tokenizers` library has them. */
export const isWhitespace = (char: string): boolean => /^\p{White_Space}$/u.test(char);
export const WHITESPACE_AT_START = /^\p{White_Space}+/u;

/** White space at the end begins here. Time is in proportion to the white space, whatever comes before. */
export function trimmedEnd(text: string): number {
  let end = text.length;
  while (end > 0 && isWhitespace(text[end - 1] as string)) end--;
  return end;
}
