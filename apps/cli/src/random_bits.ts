/** Random 32-bit words (sfc32), the same for the same seed on every machine. */
export class RandomBits {
  private a: number;
  private b: number;
  private c: number;
  private counter = 1;

  /** `name` chooses one of many sequences of a seed: no two tensors get the same bytes. */
  constructor(seed: number, name: string) {
    this.a = seed | 0;
    this.b = hashOf(name, 0x811c9dc5);
    this.c = hashOf(name, 0x01000193);
    // The first words still resemble the seed.
    this.fill(new Uint32Array(16));
  }

  fill(words: Uint32Array): void {
    let { a, b, c, counter } = this;
    for (let i = 0; i < words.length; i++) {
      const word = (a + b + counter) | 0;
      counter = (counter + 1) | 0;
      a = b ^ (b >>> 9);
      b = (c + (c << 3)) | 0;
      c = (((c << 21) | (c >>> 11)) + word) | 0;
      words[i] = word;
    }
    Object.assign(this, { a, b, c, counter });
  }

  /** Numbers from `mean - spread` to `mean + spread`. */
  numbers(count: number, mean: number, spread: number): Float32Array {
    const words = new Uint32Array(count);
    this.fill(words);
    return Float32Array.from(words, (word) => mean + spread * (word / 2 ** 31 - 1));
  }
}

/** FNV-1a of a text. */
function hashOf(text: string, start: number): number {
  let hash = start;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash;
}
