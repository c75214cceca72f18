// `mlxts verify` loads all suites together, vitest each file by itself: both are to run the same cases.
import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Suite } from "@mlxts/core/testing";
import { beforeAll, describe, expect, it, vi } from "vitest";
import { publicOps } from "../src/op_list.ts";

interface Suites {
  suite?: Suite;
  suites?: readonly Suite[];
}

/** What tells the cases of a suite from those that other random numbers make. */
const beginnings = ({ op, cases }: Suite): string[] =>
  cases.map(({ name, inputs }) => {
    const numbers = Object.entries(inputs).map(([input, { data }]) =>
      [input, ...Array.from({ length: Math.min(data.length, 4) }, (_, i) => data[i])].join(" "),
    );
    return [op.op.name, name, ...numbers].join("; ");
  });

async function casesOf(module: string): Promise<string[]> {
  const { suite, suites = suite ? [suite] : [] } = (await import(module)) as Suites;
  return suites.flatMap(beginnings);
}

const packages = [...new Set([...publicOps().values()].map((op) => op.package))];
const files = packages.flatMap((name) => {
  const folder = new URL(`../../../${name.replace("@mlxts", "packages")}/test/`, import.meta.url);
  return readdirSync(folder)
    .filter((file) => file.endsWith(".suite.ts"))
    .map((file) => [`${name} ${file}`, fileURLToPath(new URL(file, folder))] as const);
});

describe("a suite", () => {
  const together = new Set<string>();
  beforeAll(async () => {
    vi.resetModules();
    for (const name of packages) for (const each of await casesOf(`${name}/testing`)) together.add(each);
  }, 120_000);

  it.each(files)("has the same cases alone as with all others: %s", async (_, file) => {
    vi.resetModules();
    const cases = await casesOf(file);
    expect(cases.length).toBeGreaterThan(0);
    expect(cases.filter((each) => !together.has(each))).toEqual([]);
  });
});
