import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { inlineIncludes, metalTexts } from "../src/metal_source.ts";
import { message, testFolder } from "./helpers.ts";

describe("inlined includes", () => {
  const folder = testFolder();
  mkdirSync(join(folder, "shared"));
  const file = (name: string, text: string) => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  const inline = (path: string) => inlineIncludes(path, [join(folder, "shared")]);

  it("leave a file without includes as it is, named", () => {
    expect(inline(file("plain.metal", "#include <metal_stdlib>\nkernel void f() {}\n"))).toBe(
      '#line 1 "plain.metal"\n#include <metal_stdlib>\nkernel void f() {}\n',
    );
  });

  it("stand in place, between line markers", () => {
    file("a.h", "int a;");
    expect(inline(file("one.metal", '// first\n  #  include "a.h" // here\nint b;\n'))).toBe(
      '#line 1 "one.metal"\n// first\n#line 1 "a.h"\nint a;\n#line 3 "one.metal"\nint b;\n',
    );
  });

  it("are looked for beside the file, then in the shared folder", () => {
    file("near.h", "int near;");
    file("shared/near.h", "int far;");
    file("shared/far.h", '#include "deep.h"');
    file("shared/deep.h", "int deep;");
    const text = inline(file("two.metal", '#include "near.h"\n#include "far.h"\n'));
    expect(text).toContain("int near;");
    expect(text).toContain("int deep;");
    expect(text).not.toContain("int far;");
  });

  it("are read from texts that stand in for files", () => {
    const path = file("three.metal", '#include "swapped.h"\n');
    metalTexts.set(file("swapped.h", "int a;"), "int b;");
    expect(inline(path)).toContain("int b;");
    metalTexts.clear();
    expect(inline(path)).toContain("int a;");
  });

  it("are for CUDA the headers that stand in for Metal's, which may include those", () => {
    file("metal_word.h", "int metal;");
    file("cuda_word.h", '#include "metal_word.h"\nint cuda;');
    file("metal_other.h", "int other;");
    const path = file("words.metal", '#include "metal_word.h"\n#include "metal_other.h"\n');
    expect(inlineIncludes(path)).not.toContain("int cuda;");
    const lines = inlineIncludes(path, [], "cuda").split("\n");
    expect(lines.filter((line) => line.startsWith("int "))).toEqual(["int metal;", "int cuda;", "int other;"]);
  });

  it("keep #pragma once, in branches that are not compiled too", () => {
    file("once.h", "#pragma once\nint once;");
    const text = inline(file("twice.metal", '#if 0\n#include "once.h"\n#endif\n#include "once.h"\n'));
    const copy = '#ifndef MLXTS_ONCE_0\n#define MLXTS_ONCE_0\n#line 1 "once.h"\n\nint once;\n#endif';
    expect(text).toBe(
      `#line 1 "twice.metal"\n#if 0\n${copy}\n#line 3 "twice.metal"\n#endif\n${copy}\n#line 5 "twice.metal"\n`,
    );
  });

  it("let guarded headers include each other", () => {
    file("x.h", '#pragma once\n#include "y.h"\nint x;');
    file("y.h", '#pragma once\n#include "x.h"\nint y;');
    const text = inline(file("cycle.metal", '#include "x.h"\n'));
    expect(text.match(/int [xy];/g)).toEqual(["int y;", "int x;"]);
  });

  it("refuse a header without a guard that includes itself, and one that is not there", () => {
    file("loop.h", 'int loop;\n#include "loop.h"');
    expect(message(() => inline(file("loops.metal", '#include "loop.h"\n')))).toBe(
      'loop.h:2: error: "loop.h" includes itself',
    );
    expect(message(() => inline(file("lost.metal", '\n#include "lost.h"\n')))).toBe(
      'lost.metal:2: error: "lost.h" not found',
    );
  });
});
