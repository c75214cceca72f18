import { describe, expect, it } from "vitest";
import { defineKernel, paramsHeader } from "../src/index.ts";
import { message } from "./helpers.ts";
import { probeLibrary } from "./kernels/probe.ts";

const base = {
  library: probeLibrary,
  name: "two_words",
  variants: ["f32"],
  buffers: { x: "read", cuSeqlens: "read?", out: "readWrite" },
  params: { dim: "u32", eps: "f32", first: "i32" },
  constants: { shared: { tileRows: 32 } },
  faults: { oddDim: () => "`x` must be even, got 1", empty: () => "`x` must have rows, got 0" },
  launch: { cpu: () => ({ threadgroups: [1, 1, 1] as const }) },
} as const;

describe("kernel declarations", () => {
  it("give the header that both languages include", () => {
    expect(
      paramsHeader(defineKernel(base) as never),
    ).toBe(`// Generated from the declaration of two_words; \`npm run gen\` rewrites it.
#pragma once
#ifdef __METAL_VERSION__
#include <metal_stdlib>
#else
#include <stdint.h>
#endif

#define TWO_WORDS_X 0  // read
#define TWO_WORDS_CU_SEQLENS 1  // read?
#define TWO_WORDS_OUT 2  // readWrite
#define TWO_WORDS_PARAMS 3
#define TWO_WORDS_FAULT 4
#define TWO_WORDS_HAS_CU_SEQLENS 2u
#define TWO_WORDS_FAULT_ODD_DIM 1
#define TWO_WORDS_FAULT_EMPTY 2
#define TWO_WORDS_TILE_ROWS 32

struct TwoWordsParams {
  uint32_t dim;
  float eps;
  int32_t first;
  uint32_t present;  // a bit for each buffer
};
static_assert(sizeof(TwoWordsParams) == 16, "TwoWordsParams must match the declaration of two_words");
`);
    const plain = { ...base, buffers: { x: "read" }, params: {}, faults: {} } as const;
    expect(paramsHeader(defineKernel(plain) as never)).toContain("  uint32_t unused;\n};");
    const decided = {
      ...plain,
      launchParams: { cpu: { tail: "u32" } },
      launch: { cpu: () => ({ threadgroups: [1, 1, 1] as const, params: { tail: 1 } }) },
    } as const;
    expect(paramsHeader(defineKernel(decided) as never)).toContain(`
struct TwoWordsParams {
#ifdef __METAL_VERSION__
  uint32_t unused;
#else
  uint32_t tail;
#endif
};
static_assert(sizeof(TwoWordsParams) == 4, "TwoWordsParams must match the declaration of two_words");`);
  });

  it.each<[string, object, string]>([
    ["name", { name: "camelCase" }, "defineKernel: `name` must be in snake_case, got camelCase"],
    ["variants", { variants: [] }, "defineKernel: `variants` must name at least one variant, got []"],
    ["buffer", { buffers: { not_camel: "read" } }, "defineKernel: `not_camel` must be in camelCase, got not_camel"],
    [
      "constant",
      { constants: { shared: { rows: 0.5 } } },
      "defineKernel: `rows` must be an integer from 0 to 2147483647, got 0.5",
    ],
    ["scalar", { params: { x: "f64" } }, "defineKernel: `x` must be u32, i32 or f32, got f64"],
  ])("refuse a wrong %s", (_, change, text) => {
    expect(message(() => defineKernel({ ...base, ...change } as never))).toBe(text);
  });
});
