// The faults that planted-faults.mjs plants: each must still fit the source that it changes.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { root } from "./packages.ts";

interface Fault {
  id: string;
  area: string;
  file: string;
  from: string;
  to: string;
  fault: string;
  packages: string[];
}

const faults: Fault[] = JSON.parse(readFileSync(join(root, "scripts", "check", "planted_faults.json"), "utf8"));
const folders = ["packages", "apps"];

describe("planted faults", () => {
  it("are 20 and more of each area, numbered", () => {
    for (const area of ["kernels", "core", "models"]) {
      const ids = faults.filter((fault) => fault.area === area).map(({ id }) => id);
      expect(ids.length).toBeGreaterThanOrEqual(20);
      expect(ids.sort()).toEqual(ids.map((_, i) => `${area}-${String(i + 1).padStart(2, "0")}`));
    }
    expect(faults.filter(({ area }) => !["kernels", "core", "models"].includes(area))).toEqual([]);
  });

  it.each(faults)("$id can be planted in $file", ({ file, from, to, fault, packages }) => {
    expect(readFileSync(join(root, file), "utf8").split(from)).toHaveLength(2);
    expect(to).not.toBe(from);
    expect(fault).toMatch(/^[A-Z].*\.$/);
    expect(packages.length).toBeGreaterThan(0);
    const unknown = packages.filter((name) => !folders.some((folder) => existsSync(join(root, folder, name, "test"))));
    expect(unknown).toEqual([]);
  });
});
