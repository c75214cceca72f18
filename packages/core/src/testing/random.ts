/** Seeded numbers for fixtures: the same on every machine. */
export class Random {
  private state: number;

  constructor(seed: number) {
    this.state = seed >>> 0;
  }

  /** Uniform in [0, 1). */
  uniform(): number {
    this.state = (this.state + 0x6d2b79f5) | 0;
    let t = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }

  /** Standard normal. */
  normal(): number {
    return Math.sqrt(-2 * Math.log(1 - this.uniform())) * Math.cos(2 * Math.PI * this.uniform());
  }

  /** An integer from 0 to n − 1. */
  below(n: number): number {
    return Math.floor(this.uniform() * n);
  }

  // Loops: `Float64Array.from` takes twice the time, and suites make many millions of numbers.

  normals(n: number, scale = 1, mean = 0): Float64Array {
    const out = new Float64Array(n);
    for (let i = 0; i < n; i++) out[i] = mean + scale * this.normal();
    return out;
  }

  uniforms(n: number, low = 0, high = 1): Float64Array {
    const out = new Float64Array(n);
    for (let i = 0; i < n; i++) out[i] = low + (high - low) * this.uniform();
    return out;
  }

  integers(n: number, below: number): Float64Array {
    const out = new Float64Array(n);
    for (let i = 0; i < n; i++) out[i] = this.below(below);
    return out;
  }
}
