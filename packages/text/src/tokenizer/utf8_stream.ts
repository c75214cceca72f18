const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

/** How many bytes the character takes that begins with a byte; 1 for those that begin none. */
function widthOf(byte: number): number {
  if (byte >= 0xc2 && byte <= 0xdf) return 2;
  if (byte >= 0xe0 && byte <= 0xef) return 3;
  return byte >= 0xf0 && byte <= 0xf4 ? 4 : 1;
}

/** Whether `second` may follow `first`: not every continuing byte may. */
function mayFollow(first: number, second: number): boolean {
  const least = first === 0xe0 ? 0xa0 : first === 0xf0 ? 0x90 : 0x80;
  const most = first === 0xed ? 0x9f : first === 0xf4 ? 0x8f : 0xbf;
  return second >= least && second <= most;
}

/** How many bytes at the end are the beginning of a character, which following bytes may complete. */
function incompleteTail(bytes: readonly number[]): number {
  for (let length = 1; length <= 3 && length <= bytes.length; length++) {
    const byte = bytes[bytes.length - length] as number;
    if (byte >= 0x80 && byte < 0xc0) continue;
    if (widthOf(byte) <= length) return 0;
    return length === 1 || mayFollow(byte, bytes[bytes.length - length + 1] as number) ? length : 0;
  }
  return 0;
}

/** Decodes UTF-8 as it comes; what is invalid becomes U+FFFD, as in a text that is decoded as a whole. */
export class Utf8Stream {
  /** The beginning of a character. */
  private pending: number[] = [];

  get isPending(): boolean {
    return this.pending.length > 0;
  }

  push(bytes: Iterable<number>): string {
    const all = this.pending;
    for (const byte of bytes) all.push(byte);
    const length = all.length - incompleteTail(all);
    this.pending = all.slice(length);
    return length === 0 ? "" : decoder.decode(Uint8Array.from(all.slice(0, length)));
  }

  end(): string {
    const bytes = this.pending;
    this.pending = [];
    return bytes.length === 0 ? "" : decoder.decode(Uint8Array.from(bytes));
  }
}
