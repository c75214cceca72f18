import { describe, expect, it } from "vitest";
import { mutationsOf, staleHeaders } from "../src/mutations.ts";

/** The lines that a mutation changes. */
function changes(source: string, headers: string[] = []) {
  const lines = source.split("\n");
  return mutationsOf(source, headers).map(({ kind, line, what, text }) => {
    const now = text.split("\n");
    const different = now.flatMap((l, i) => (l === lines[i] ? [] : [i + 1]));
    expect(different).toEqual([line]);
    return [kind, what, (now[line - 1] as string).trim()];
  });
}

describe("mutations of a kernel's text", () => {
  it("remove each barrier", () => {
    expect(changes("void f() {\n  threadgroup_barrier(flags(1));\n  metal::simdgroup_barrier(x);\n}")).toEqual([
      ["barrier", "remove threadgroup_barrier", ";"],
      ["barrier", "remove simdgroup_barrier", ";"],
    ]);
  });

  it("move each index by one, and no array's size", () => {
    const source = [
      "kernel void k(device float* x [[buffer(0)]], uint i [[thread_index_in_simdgroup]]) {",
      "  float sums[4], more[2][N], one = x[i];",
      "  vec<float, 2> pair[2] = {};",
      "  threadgroup T* rows[3];",
      "  return x[i * 2][j] + f(a, b[1])[0];",
      "  const float c = d > e[7];",
      "  void g(thread const float (&sums)[4], thread vec<T, 2> (&tiles)[N], float y = a + (&x)[1]);",
      "}",
    ].join("\n");
    expect(changes(source)).toEqual([
      ["index", "x[i] one further", "float sums[4], more[2][N], one = x[i + 1];"],
      ["index", "x[i * 2] one further", "return x[(i * 2) + 1][j] + f(a, b[1])[0];"],
      ["index", "][j] one further", "return x[i * 2][j + 1] + f(a, b[1])[0];"],
      ["index", "b[1] one further", "return x[i * 2][j] + f(a, b[1 + 1])[0];"],
      ["index", ")[0] one further", "return x[i * 2][j] + f(a, b[1])[0 + 1];"],
      ["bound", "d > e with >=", "const float c = d >= e[7];"],
      ["index", "e[7] one further", "const float c = d > e[7 + 1];"],
      [
        "index",
        ")[1] one further",
        "void g(thread const float (&sums)[4], thread vec<T, 2> (&tiles)[N], float y = a + (&x)[1 + 1]);",
      ],
    ]);
  });

  it("move each pointer by one, where it is one", () => {
    const source = "device const T* from = x + row * dim;\nto += 4;\nfloat y = *p + 1;\nload(t.tile + n + m);";
    const header = "void g(device T* x, threadgroup float* tile, device T* to, device float* p);";
    expect(changes(source, [header])).toEqual([
      ["index", "x + row one further", "device const T* from = x + 1 + row * dim;"],
      ["index", "to += 4 one further", "to += 1 + 4;"],
      ["index", "tile + n one further", "load(t.tile + 1 + n + m);"],
    ]);
  });

  it("move what simdgroup_load and simdgroup_store are given", () => {
    const source =
      "threadgroup float* a = tiles;\nsimdgroup_load(m, a, 8);\nsimdgroup_store(m, a + 8, n, ulong2(i, 2 * j), true);";
    expect(changes(source)).toEqual([
      ["index", "simdgroup_load a one further", "simdgroup_load(m, a + 1, 8);"],
      ["index", "simdgroup_store origin x one further", "simdgroup_store(m, a + 8, n, ulong2(i + 1, 2 * j), true);"],
      ["index", "simdgroup_store origin y one further", "simdgroup_store(m, a + 8, n, ulong2(i, (2 * j) + 1), true);"],
      ["index", "a + 8 one further", "simdgroup_store(m, a + 1 + 8, n, ulong2(i, 2 * j), true);"],
    ]);
  });

  it("move bounds, and leave templates, shifts, comments, strings and directives alone", () => {
    const source = [
      "#include <metal_stdlib>",
      "#if A < B",
      "template <typename T> T f(vec<T, 2> v);  // x[i] < 3",
      '/* x[0] */ const char* s = "x[0] < 1";',
      "for (uint i = a << 1; i < n && (i >= 2 || i < n); ++i) f<T>(i >> 1);",
      "#endif",
      "#define CHECK(i) if (i <= 4) \\",
      "  x[i] = 1;",
    ].join("\n");
    const loop = (text: string) => `for (uint i = a << 1; ${text}; ++i) f<T>(i >> 1);`;
    expect(changes(source)).toEqual([
      ["bound", "i < n with <=", loop("i <= n && (i >= 2 || i < n)")],
      ["bound", "i >= 2 with >", loop("i < n && (i > 2 || i < n)")],
      ["bound", "i < n with <= (2)", loop("i < n && (i >= 2 || i <= n)")],
      ["bound", "i <= 4 with <", "#define CHECK(i) if (i < 4) \\"],
      ["index", "x[i] one further", "x[i + 1] = 1;"],
    ]);
  });

  it("leave what is for C++ alone", () => {
    const source = "#ifdef __METAL_VERSION__\nfloat y = x[i];\n#else\nfloat y = x[j];\n#endif";
    expect(changes(source)).toEqual([["index", "x[i] one further", "float y = x[i + 1];"]]);
  });
});

describe("stale params headers", () => {
  const header = [
    "#pragma once",
    "#define OP_X 0  // read",
    "#define OP_OUT 1  // write",
    "#define OP_PARAMS 2",
    "#define OP_FAULT 3",
    "#define OP_FAULT_ID 1",
    "#define OP_TILE 4",
    "struct OpParams {",
    "  uint32_t rows;",
    "  float eps;",
    "  uint32_t host;",
    "  uint32_t threads;",
    "};",
    'static_assert(sizeof(OpParams) == 16, "");',
  ].join("\n");

  it("swap neighboring fields and neighboring bindings that the kernel uses", () => {
    const used = (word: string) => !["host", "threads"].includes(word);
    const found = staleHeaders(header, used);
    expect(found.map(({ kind, line, what }) => [kind, line, what])).toEqual([
      ["binding", 2, "swap OP_X and OP_OUT"],
      ["binding", 3, "swap OP_OUT and OP_PARAMS"],
      ["binding", 4, "swap OP_PARAMS and OP_FAULT"],
      ["params", 9, "swap rows and eps"],
      ["params", 10, "swap eps and host"],
    ]);
    expect(found[0]?.text.split("\n").slice(1, 4)).toEqual([
      "#define OP_X 1  // read",
      "#define OP_OUT 0  // write",
      "#define OP_PARAMS 2",
    ]);
    expect(found[3]?.text.split("\n").slice(7, 10)).toEqual(["struct OpParams {", "  float eps;", "  uint32_t rows;"]);
    expect(staleHeaders(header, () => false)).toEqual([]);
  });

  it("have fields for C++ alone, which are left as they are", () => {
    const cpp = ["#ifndef __METAL_VERSION__", "  uint32_t rows;", "  uint32_t block;", "#endif"];
    expect(staleHeaders(["struct OpParams {", ...cpp, "};"].join("\n"), () => true)).toEqual([]);
  });
});
