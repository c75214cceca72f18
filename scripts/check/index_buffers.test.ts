// Numbers that decide addresses are read once each, by one primitive: Indices::read of cpu_kernel.h, read_index of
// metal_kernel.h. Neither type lets itself be read in another way; here every buffer of such numbers must have it.
import { readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { inputTensors } from "@mlxts/core";
import { describe, expect, it } from "vitest";
import { allOps, opPackages, root } from "./packages.ts";

const INDICES = [
  "CU_SEQLENS",
  "GATE_STARTS",
  "IDS",
  "INDICES",
  "LENGTHS",
  "LHS_INDICES",
  "OFFSETS",
  "ORDER",
  "PLACES",
  "POSITIONS",
  "REJECTED",
  "RHS_INDICES",
  "START",
  "STARTS",
  "STEP",
  "UP_STARTS",
];
/** Integers that are no indices: masks, packed codes of weights, and what `slice` copies; any bit pattern of them is right. */
const VALUES = ["ages", "chosen", "stack", "treeMask", "weight", "x"];

/** What is wrong with how a kernel takes its indices; `header` declares its buffers. */
function findings(stem: string, header: string, cpu: string | undefined, metal: string | undefined): string[] {
  const found: string[] = [];
  for (const [, macro = "", name = ""] of header.matchAll(
    new RegExp(`#define (${stem.toUpperCase()}_(\\w+)) \\d+  // read\\??$`, "gm"),
  )) {
    if (!INDICES.includes(name)) continue;
    const uses = (text: string) =>
      [...text.matchAll(new RegExp(`^.*\\b${macro}\\b.*$`, "gm"))].map(([line]) => line.trim());
    const taken = (text: string, pattern: RegExp) =>
      uses(text).length > 0 && uses(text).every((line) => pattern.test(line));
    if (cpu !== undefined && !taken(cpu, new RegExp(`\\.indices\\(${macro}\\)`)))
      found.push(`${stem}.cpp must take ${macro} with indices()`);
    if (metal !== undefined && !taken(metal, new RegExp(`device const Index\\* \\w+ \\[\\[buffer\\(${macro}\\)\\]\\]`)))
      found.push(`${stem}.metal must take ${macro} as device const Index*`);
  }
  // The types are not to be cast away.
  for (const [text, name] of [
    [cpu, "cpp"],
    [metal, "metal"],
  ] as const)
    if (
      text &&
      /\(device const (volatile )?(u?int|uint32_t|int32_t)\*\)|reinterpret_cast<const u?int32_t\*>\(\w*(ids|start|lengths|positions|rejected|cu_seqlens)/.test(
        text,
      )
    )
      found.push(`${stem}.${name} must not cast indices to plain numbers`);
  return found;
}

const read = (path: string): string | undefined => {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
};

describe("buffers of indices", () => {
  const kernels = opPackages.flatMap((name) => {
    const folder = join(root, "packages", name, "native");
    return readdirSync(folder)
      .filter((file) => file.endsWith(".params.h"))
      .map((file) => join(folder, basename(file, ".params.h")));
  });

  it.each(kernels.map((path) => [basename(path), path]))("%s reads them through the primitive", (stem, path) => {
    const header = readFileSync(`${path}.params.h`, "utf8");
    expect(findings(stem, header, read(`${path}.cpp`), read(`${path}.metal`))).toEqual([]);
  });

  it("knows every integer input of every op", async () => {
    const unknown = (await allOps()).flatMap((op) =>
      inputTensors(op)
        .filter(([, { dtype }]) => Array.isArray(dtype) && dtype.some((each) => each === "i32" || each === "u32"))
        .map(([name]) => name)
        .filter((name) => !VALUES.includes(name.replace(/^.*\./, "")))
        .filter((name) => !INDICES.includes(name.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase()))
        .map((name) => `${op.name}.${name}`),
    );
    expect(unknown).toEqual([]);
  });

  it("finds plain reads", () => {
    const header = "#define KERNEL_IDS 0  // read\n#define KERNEL_OUT 1  // write\n";
    const cpu = "const Indices ids = l.indices(KERNEL_IDS);";
    const metal = "device const Index* ids [[buffer(KERNEL_IDS)]],";
    expect(findings("kernel", header, cpu, metal)).toEqual([]);
    expect(findings("kernel", header, "const int32_t* ids = l.buffer<const int32_t>(KERNEL_IDS);", metal)).toEqual([
      "kernel.cpp must take KERNEL_IDS with indices()",
    ]);
    expect(findings("kernel", header, cpu, "device const int* ids [[buffer(KERNEL_IDS)]],")).toEqual([
      "kernel.metal must take KERNEL_IDS as device const Index*",
    ]);
    expect(findings("kernel", header, "", metal)).toHaveLength(1);
    expect(findings("kernel", header, cpu, `${metal} ((device const int*)ids)[0]`)).toHaveLength(1);
  });
});
