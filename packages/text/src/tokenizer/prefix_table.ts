/** Texts as a tree of their UTF-16 units, kept in flat arrays: a hash table of (node, unit) → node. */
export class PrefixTable {
  private nodes = 1;
  private capacity: number;
  private mask: number;
  private parents: Int32Array;
  private units: Uint16Array;
  private children: Int32Array;
  /** The value of the text that ends at a node, or −1. */
  private values: Int32Array;

  /** @param characters about so many in all texts */
  constructor(characters = 0) {
    this.capacity = 16;
    while (this.capacity < 2 * characters) this.capacity *= 2;
    this.mask = this.capacity - 1;
    this.parents = new Int32Array(this.capacity).fill(-1);
    this.units = new Uint16Array(this.capacity);
    this.children = new Int32Array(this.capacity);
    this.values = new Int32Array(this.capacity).fill(-1);
  }

  add(text: string, value: number): void {
    let node = 0;
    for (let at = 0; at < text.length; at++) {
      const unit = text.charCodeAt(at);
      let place = this.placeOf(node, unit);
      if (this.parents[place] === -1) {
        if (2 * this.nodes >= this.capacity) {
          this.grow();
          place = this.placeOf(node, unit);
        }
        this.parents[place] = node;
        this.units[place] = unit;
        this.children[place] = this.nodes++;
      }
      node = this.children[place] as number;
    }
    this.values[node] = value;
  }

  /** The node after `node` and a unit, or −1. The root is node 0. */
  child(node: number, unit: number): number {
    const place = this.placeOf(node, unit);
    return this.parents[place] === -1 ? -1 : (this.children[place] as number);
  }

  /** The value of the text that ends at a node, or −1. */
  value(node: number): number {
    return this.values[node] as number;
  }

  private placeOf(node: number, unit: number): number {
    const { mask, parents, units } = this;
    let place = (Math.imul(node, 0x9e3779b1) ^ Math.imul(unit, 0x85ebca6b)) >>> 0;
    place = (place ^ (place >>> 15)) & mask;
    while (parents[place] !== -1 && (parents[place] !== node || units[place] !== unit)) place = (place + 1) & mask;
    return place;
  }

  private grow(): void {
    const { parents, units, children, values } = this;
    this.capacity *= 2;
    this.mask = this.capacity - 1;
    this.parents = new Int32Array(this.capacity).fill(-1);
    this.units = new Uint16Array(this.capacity);
    this.children = new Int32Array(this.capacity);
    this.values = new Int32Array(this.capacity).fill(-1);
    this.values.set(values);
    for (let old = 0; old < parents.length; old++) {
      if (parents[old] === -1) continue;
      const place = this.placeOf(parents[old] as number, units[old] as number);
      this.parents[place] = parents[old] as number;
      this.units[place] = units[old] as number;
      this.children[place] = children[old] as number;
    }
  }
}
