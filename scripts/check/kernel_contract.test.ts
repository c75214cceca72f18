// What a kernel and its launch rules agree on stands in the declaration, and reaches C++ and Metal through the generated
// header; what depends on the kind of device is a launch rule or a constant of its own.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { opPackages, root } from "./packages.ts";

/** What no TypeScript of an op package may say. */
const KIND = [/\bgpu \?/, /\.gpu\b/, /\bdevice\.kind\b/, /\{ gpu \}/];
/** What no kernel may say: places that the header names. */
const TYPED_BY_HAND: readonly (readonly [RegExp, string])[] = [
  [/\.buffer<[^>]*>\(\d/, "an index of a buffer"],
  [/\.indices\(\d/, "an index of a buffer"],
  [/\[\[buffer\(\d/, "an index of a buffer"],
  [/\bl\.scratch\b/, "an offset into scratch"],
  [/\bmemory \+ /, "an offset into threadgroup memory"],
];

const linesOf = (folder: string, extension: RegExp) =>
  readdirSync(folder)
    .filter((name) => extension.test(name) && !name.endsWith(".params.h"))
    .flatMap((name) =>
      readFileSync(join(folder, name), "utf8")
        .split("\n")
        .map((text, i) => ({ text, place: `${name}:${i + 1}` })),
    );

describe.each(opPackages)("%s", (name) => {
  it("asks what a device offers, never its kind", () => {
    const found = linesOf(join(root, "packages", name, "src"), /\.ts$/).flatMap(({ text, place }) =>
      KIND.some((pattern) => pattern.test(text)) ? [`${place}: ${text.trim()}`] : [],
    );
    expect(found).toEqual([]);
  });

  it("takes places from generated headers", () => {
    const found = linesOf(join(root, "packages", name, "native"), /\.(cpp|h|metal)$/).flatMap(({ text, place }) =>
      TYPED_BY_HAND.flatMap(([pattern, what]) => (pattern.test(text) ? [`${place}: ${what}: ${text.trim()}`] : [])),
    );
    expect(found).toEqual([]);
  });
});

it("the patterns find what they are for", () => {
  for (const line of ["const n = gpu ? 1 : 2;", "if (encoder.device.gpu)", "(sizes, { gpu }) => 1"])
    expect(KIND.some((pattern) => pattern.test(line))).toBe(true);
  for (const line of [
    "l.buffer<const float>(3)",
    "l.indices(2)",
    "device float* x [[buffer(0)]]",
    "float* a = static_cast<float*>(l.scratch);",
    "threadgroup float* a = memory + 64;",
  ])
    expect(TYPED_BY_HAND.some(([pattern]) => pattern.test(line))).toBe(true);
});
