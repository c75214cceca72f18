import { Fault } from "./faults.ts";

/** How much work a rendering may do and how much it may make. */
export interface Limits {
  /** Nodes evaluated, and items and characters looked at by filters and methods. */
  steps: number;
  /** Characters of one value. An item of a list counts as 16. */
  characters: number;
  /** Characters of all values together. */
  total: number;
}

/** An item of a list takes the memory of about so many characters. */
const ITEM = 16;
/** Nested evaluations, and values within each other: so deep that the stack of JavaScript holds them. */
const MAX_DEPTH = 400;

/** Counts the work of one rendering, before it is done. */
export class Budget {
  private steps: number;
  private total: number;
  private depth = 0;
  private readonly limits: Limits;

  constructor(limits: Limits) {
    this.limits = limits;
    this.steps = limits.steps;
    this.total = limits.total;
  }

  /** Counts work. */
  work(steps: number): void {
    this.steps -= steps;
    if (!(this.steps >= 0)) throw new Fault("limit", `takes more than ${this.limits.steps} steps`);
  }

  /** Counts the characters of a value that is about to be made. */
  make(characters: number): void {
    if (!(characters <= this.limits.characters))
      throw new Fault("limit", `makes a text or list of more than ${this.limits.characters} characters`);
    this.total -= characters;
    this.steps -= characters / 16;
    if (!(this.total >= 0)) throw new Fault("limit", "makes more text and lists than a template may");
  }

  makeItems(items: number): void {
    this.make(items * ITEM);
    this.work(items);
  }

  /** A text that has been made. */
  made(text: string): string {
    this.make(text.length);
    return text;
  }

  enter(): void {
    if (++this.depth > MAX_DEPTH) throw new Fault("limit", "nests too deeply");
  }

  leave(): void {
    this.depth--;
  }
}
