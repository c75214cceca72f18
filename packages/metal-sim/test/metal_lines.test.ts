import { expect, it } from "vitest";
import { metalLines } from "../src/metal_lines.ts";

it("what conditions on __METAL_VERSION__ keep for C++ becomes spaces, and nothing else", () => {
  const text = [
    ...["#ifdef __METAL_VERSION__", "metal", "#else", '#include "cpp.h"', "cpp", "#endif"],
    ...["#ifndef __METAL_VERSION__", "#if A", "cpp", "#else", "cpp", "#endif", "#else", "metal", "#endif"],
    ...["#if A", "either", "#else", "either", "#endif", "all"],
  ].join("\n");
  expect(metalLines(text)).toHaveLength(text.length);
  const left = text.replace(/^(cpp|#include .*)$/gm, (line) => " ".repeat(line.length));
  expect(metalLines(text)).toBe(left);
});
