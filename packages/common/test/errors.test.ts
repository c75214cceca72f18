import { inspect } from "node:util";
import { describe, expect, it } from "vitest";
import * as own from "../src/errors.ts";

/** The module a second time, as another package carries it. */
const other = (await import(/* @vite-ignore */ `${"../src/errors.ts"}?copy`)) as typeof own;

describe("copies of the errors", () => {
  it("know each other's", () => {
    expect(other.MlxtsError).not.toBe(own.MlxtsError);
    const errors = [
      new other.MlxtsError("Io", ""),
      other.wrongKind("op", "x", "be", 1),
      other.wrongValue("op", "x", "be", 1),
    ];
    const classes = [own.MlxtsError, own.ArgumentTypeError, own.ArgumentRangeError];
    expect(errors.map((error) => classes.map((type) => error instanceof type))).toEqual([
      [true, false, false],
      [false, true, false],
      [false, false, true],
    ]);
    expect(errors.map((error) => error.constructor.name)).toEqual([
      "MlxtsError",
      "ArgumentTypeError",
      "ArgumentRangeError",
    ]);
  });

  it("leave other values and classes alone", () => {
    class Mine extends own.MlxtsError {}
    expect([new Mine("Io", "") instanceof Mine, new other.MlxtsError("Io", "") instanceof Mine]).toEqual([true, false]);
    for (const value of [null, undefined, 1, "MlxtsError", {}, new Error("no")])
      expect((value as unknown) instanceof own.MlxtsError).toBe(false);
  });
});

it("printAsJson needs nothing of Node.js's but what prints", () => {
  class Thing {
    readonly secret = 1;
    toJSON(): object {
      return { type: "Thing", size: this.secret + 1 };
    }
  }
  own.printAsJson(Thing);
  expect(inspect(new Thing())).toBe("Thing { size: 2 }");
  expect(inspect([[[new Thing()]]])).toBe("[ [ [ [Thing] ] ] ]");
});
