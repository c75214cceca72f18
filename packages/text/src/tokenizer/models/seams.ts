const BITS = 22;

/**
 * Finds places in a text that no merge can cross: between two characters that are neighbors in no token. What is on both
 * sides can then be merged for itself, and remembered.
 */
export class Seams {
  /** A bit for each hash of neighbors in a token: neighbors without one are in none. */
  private readonly neighbors = new Uint8Array(1 << (BITS - 3));

  constructor(tokens: Iterable<string>) {
    const { neighbors } = this;
    for (const token of tokens)
      for (let at = 1; at < token.length; at++) {
        const hash = hashOf(token.charCodeAt(at - 1), token.charCodeAt(at));
        neighbors[hash >>> 3] = (neighbors[hash >>> 3] as number) | (1 << (hash & 7));
      }
  }

  /** Whether no token has these two UTF-16 units as neighbors. */
  between(left: number, right: number): boolean {
    const hash = hashOf(left, right);
    return ((this.neighbors[hash >>> 3] as number) & (1 << (hash & 7))) === 0;
  }
}

function hashOf(left: number, right: number): number {
  const hash = Math.imul((left << 16) | right, 0x9e3779b1);
  return (hash >>> (32 - BITS)) >>> 0;
}
