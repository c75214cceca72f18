import type { Work } from "../work.ts";
import type { Position } from "./ast.ts";
import { CharTest, foldsEqual } from "./char_test.ts";
import type { Instruction, Program } from "./program.ts";
import { ESCAPED_CLASSES } from "./properties.ts";

const WORD = new CharTest({ kind: "set", source: ESCAPED_CLASSES.w as string, negated: false });

/** Together they take some 60 MB. */
const MAX_CHOICES = 1 << 20;

/** Where backtracking goes on: at an instruction and a place, or within a run of characters. */
interface Choice {
  /** Index of the instruction; −1: only `slot` gets its old value. */
  at: number;
  place: number;
  /** The first place that a run may be shortened to; −1 if there is no run. */
  least: number;
  slot: number;
}

/** Matches by backtracking, as Oniguruma does, and counts its steps. */
export class BacktrackingMatcher {
  start = 0;
  end = 0;
  private readonly instructions: readonly Instruction[];
  private readonly slots: Int32Array;
  private text = "";
  private searchStart = 0;
  private work!: Work;

  constructor({ instructions, slots }: Program) {
    this.instructions = instructions;
    this.slots = new Int32Array(slots);
  }

  /** Finds the first match from the place `from` on: it is then from `start` to `end`. */
  find(text: string, from: number, work: Work): boolean {
    this.text = text;
    this.searchStart = from;
    this.work = work;
    for (let start = from; start <= text.length; start += this.widthAt(start)) {
      this.slots.fill(-1);
      work.spend(1 + this.slots.length / 8);
      const end = this.run(0, start, -1);
      if (end < 0) continue;
      this.start = start;
      this.end = end;
      return true;
    }
    return false;
  }

  private widthAt(place: number): number {
    const unit = this.text.charCodeAt(place);
    return unit >= 0xd800 && unit < 0xdc00 ? 2 : 1;
  }

  /** Runs from an instruction to `done`; returns the place, or −1. `target`: the place where a match must end, or −1. */
  private run(first: number, from: number, target: number): number {
    const { instructions, text, slots, work } = this;
    const choices: Choice[] = [];
    let at = first;
    let place = from;
    let steps = 0;
    for (;;) {
      if (++steps === 1024) {
        work.spend(steps);
        steps = 0;
        if (choices.length > MAX_CHOICES) throw work.exceeded("needs too much memory for a regular expression");
      }
      const instruction = instructions[at] as Instruction;
      let fits = true;
      switch (instruction.op) {
        case "char":
          fits = text.codePointAt(place) === instruction.codePoint;
          if (fits) place += instruction.codePoint > 0xffff ? 2 : 1;
          at++;
          break;
        case "set": {
          const codePoint = text.codePointAt(place);
          fits = codePoint !== undefined && instruction.test.has(codePoint);
          if (fits) place += (codePoint as number) > 0xffff ? 2 : 1;
          at++;
          break;
        }
        case "run": {
          const { test, min, max, possessive } = instruction;
          let count = 0;
          let least = place;
          const begin = place;
          while (count < max) {
            const codePoint = text.codePointAt(place);
            if (codePoint === undefined || !test.has(codePoint)) break;
            place += codePoint > 0xffff ? 2 : 1;
            if (++count === min) least = place;
          }
          work.spend((place - begin) / 4);
          fits = count >= min;
          at++;
          if (fits && !possessive && place > least) choices.push({ at, place, least, slot: -1 });
          break;
        }
        case "split":
          choices.push({ at: instruction.second, place, least: -1, slot: -1 });
          at = instruction.first;
          break;
        case "jump":
          at = instruction.next;
          break;
        case "save":
        case "mark": {
          const { slot } = instruction;
          choices.push({ at: -1, place: slots[slot] as number, least: -1, slot });
          slots[slot] = place;
          at++;
          break;
        }
        case "progress":
          // The jump back to the top of the loop follows.
          at += slots[instruction.slot] === place ? 2 : 1;
          break;
        case "position":
          fits = this.isAt(instruction.at, place);
          at++;
          break;
        case "backreference": {
          const end = this.refersTo(instruction.indices, instruction.folds, place);
          fits = end >= 0;
          if (fits) place = end;
          at++;
          break;
        }
        case "atomic": {
          const before = slots.slice();
          const end = this.run(at + 1, place, -1);
          fits = end >= 0;
          if (fits) {
            for (const [slot, value] of before.entries())
              if (value !== slots[slot]) choices.push({ at: -1, place: value, least: -1, slot });
            place = end;
          } else slots.set(before);
          work.spend(before.length / 8);
          at = instruction.next;
          break;
        }
        case "look": {
          const before = slots.slice();
          const found = instruction.behind
            ? this.looksBehind(at + 1, place, instruction.longest)
            : this.run(at + 1, place, -1) >= 0;
          fits = found !== instruction.negated;
          work.spend(before.length / 8);
          if (!fits || instruction.negated) slots.set(before);
          else
            for (const [slot, value] of before.entries())
              if (value !== slots[slot]) choices.push({ at: -1, place: value, least: -1, slot });
          at = instruction.next;
          break;
        }
        case "done":
          fits = target < 0 || place === target;
          if (fits) {
            work.spend(steps);
            return place;
          }
      }
      if (fits) continue;
      // Goes back to the last choice.
      for (;;) {
        const choice = choices.at(-1);
        if (choice === undefined) {
          work.spend(steps);
          return -1;
        }
        if (++steps === 1024) {
          work.spend(steps);
          steps = 0;
        }
        if (choice.at < 0) {
          slots[choice.slot] = choice.place;
          choices.pop();
          continue;
        }
        at = choice.at;
        if (choice.least < 0) {
          place = choice.place;
          choices.pop();
          break;
        }
        const last = text.charCodeAt(choice.place - 1);
        choice.place -= last >= 0xdc00 && last < 0xe000 ? 2 : 1;
        place = choice.place;
        if (place <= choice.least) choices.pop();
        break;
      }
    }
  }

  private looksBehind(first: number, place: number, longest: number): boolean {
    let start = place;
    for (let length = 0; length <= longest; length++) {
      if (this.run(first, start, place) >= 0) return true;
      if (start === 0) return false;
      const unit = this.text.charCodeAt(start - 1);
      start -= unit >= 0xdc00 && unit < 0xe000 ? 2 : 1;
    }
    return false;
  }

  private refersTo(indices: readonly number[], folds: boolean, place: number): number {
    for (const index of indices) {
      const start = this.slots[2 * index] as number;
      const end = this.slots[2 * index + 1] as number;
      if (start < 0 || end < start) continue;
      const captured = this.text.slice(start, end);
      this.work.spend(captured.length / 4);
      if (this.text.startsWith(captured, place)) return place + captured.length;
      if (!folds) return -1;
      let at = place;
      for (const char of captured) {
        const here = this.text.codePointAt(at);
        if (here === undefined || !foldsEqual(char.codePointAt(0) as number, here)) return -1;
        at += here > 0xffff ? 2 : 1;
      }
      return at;
    }
    return -1;
  }

  private isAt(position: Position, place: number): boolean {
    const { text } = this;
    switch (position) {
      case "textStart":
        return place === 0;
      case "textEnd":
        return place === text.length;
      case "searchStart":
        return place === this.searchStart;
      case "lineStart":
        return place === 0 || (text[place - 1] === "\n" && place < text.length);
      case "lineEnd":
        return place === text.length || text[place] === "\n";
      case "lastLineEnd":
        return place === text.length || (text[place] === "\n" && place === text.length - 1);
      case "wordBoundary":
        return this.isWordBefore(place) !== this.isWordAfter(place);
      case "noWordBoundary":
        return this.isWordBefore(place) === this.isWordAfter(place);
    }
  }

  private isWordAfter(place: number): boolean {
    const codePoint = this.text.codePointAt(place);
    return codePoint !== undefined && WORD.has(codePoint);
  }

  private isWordBefore(place: number): boolean {
    if (place === 0) return false;
    const unit = this.text.charCodeAt(place - 1);
    return this.isWordAfter(unit >= 0xdc00 && unit < 0xe000 ? place - 2 : place - 1);
  }
}
