import { checkOptionNames } from "@mlxts/core";
import { expect, test } from "vitest";

interface Options {
  eps?: number;
  seed?: number;
}
const names = { eps: true, seed: true } as const;

test("known options pass, absent ones too", () => {
  checkOptionNames<Options>("op", {}, names);
  checkOptionNames<Options>("op", { eps: 1 }, names);
});

test("an unknown option is named, beside those there are", () => {
  expect(() => checkOptionNames("op", { epsilon: 1 } as Options, names)).toThrow(
    "op: `epsilon` must be one of eps, seed, got an unknown option",
  );
  expect(() => checkOptionNames("op", { toString: 1 } as Options, names)).toThrow("got an unknown option");
  expect(() => checkOptionNames("op", { eps: 1 } as object, {})).toThrow("must be one of (no options)");
});

test("what is no object is refused", () => {
  for (const wrong of [null, 3, "eps"])
    expect(() => checkOptionNames("op", wrong as unknown as Options, names)).toThrow(
      "op: `options` must be an object, got",
    );
});
