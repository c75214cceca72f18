import { describe, expect, it } from "vitest";
import { executedLines, executedWords, missedLines, uncompiled } from "../src/executed_lines.ts";

const kernel = (name: string, ...headers: string[]) => ({
  path: `packages/${name}.metal`,
  package: name.split("/")[0] as string,
  kernel: name.split("/")[1] as string,
  includes: [`packages/${name}.metal`, ...headers],
});

describe("lines of Metal kernels", () => {
  const kernels = [
    kernel("a/one", "packages/a/row.h", "packages/core/shared.h"),
    kernel("a/two", "packages/a/row.h"),
    kernel("b/three", "packages/b/row.h", "packages/core/shared.h"),
  ];

  it("are merged over processes and over the kernels that include a header", () => {
    const logs = [
      "one.metal one.metal:3 1\none.metal row.h:7 0\none.metal row.h:8 0\none.metal shared.h:1 0\n",
      "two.metal row.h:7 1\nthree.metal row.h:7 0\nthree.metal shared.h:1 1\nother.metal row.h:9 1\n",
    ];
    const lines = executedLines(logs, kernels);
    expect(Object.fromEntries([...lines].map(([path, all]) => [path, Object.fromEntries(all)]))).toEqual({
      "packages/a/one.metal": { 3: true },
      "packages/a/row.h": { 7: true, 8: false },
      "packages/b/row.h": { 7: false },
      "packages/core/shared.h": { 1: true },
    });
  });

  it("that are missed must be excepted by their text, and exceptions must be borne out", () => {
    const lines = executedLines(["one.metal one.metal:1 0\none.metal one.metal:2 0\none.metal one.metal:3 1"], kernels);
    const exception = (line: string) => ({ file: "packages/a/one.metal", line, reason: "a reason" });
    expect(
      missedLines(lines, () => "  first;\n  second;\n  third;\n", [exception("second;"), exception("third;")]),
    ).toEqual({
      missed: [{ file: "packages/a/one.metal", line: 1, text: "first;" }],
      excepted: [{ file: "packages/a/one.metal", line: 2, text: "second;", reason: "a reason" }],
      stale: [exception("third;")],
    });
  });

  it("of functions that are in no kernel are missed too", () => {
    const text =
      "// METAL_FUNC int no() {\nMETAL_FUNC int a() { return 1; }\ntemplate <typename T>\nMETAL_FUNC T b(T x) {\n  if (x) {\n    y;\n  }\n  return x;\n}\n";
    const none = new Set<string>();
    const shared = `MLXTS_FUNC bool a() {}\n#ifndef __METAL_VERSION__\nMLXTS_FUNC bool b() {}\n#endif\n`;
    expect(uncompiled(shared, undefined, none)).toEqual([1]);
    expect(uncompiled(text, new Map([[2, true]]), none)).toEqual([4]);
    expect(uncompiled(text, new Map([[8, false]]), none)).toEqual([2]);
    expect(uncompiled(text, undefined, none)).toEqual([2, 4]);
    const lines = new Map([
      [
        "x.h",
        new Map([
          [1, true],
          [2, false],
        ]),
      ],
    ]);
    expect(
      uncompiled(
        text,
        undefined,
        executedWords(lines, () => "y = b(x);\nz = a();"),
      ),
    ).toEqual([2]);
  });
});
