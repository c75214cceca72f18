import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { make, prune, write } from "../src/cache.ts";

describe("compiled code on disk", () => {
  let folder = "";
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "metal-sim-cache-"));
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  const HOUR = 3600;
  function file(name: string, bytes: number, hoursAgo: number): void {
    writeFileSync(join(folder, name), new Uint8Array(bytes));
    const then = Date.now() / 1000 - hoursAgo * HOUR;
    utimesSync(join(folder, name), then, then);
  }

  it("is made once, and appears whole", () => {
    const path = join(folder, "new", "x.so");
    const build = (temporary: string) => {
      expect(readdirSync(join(folder, "new"))).toEqual([]);
      writeFileSync(temporary, "code");
    };
    expect(make(path, build)).toBe(path);
    make(path, () => expect.unreachable());
    expect(readdirSync(join(folder, "new"))).toEqual(["x.so"]);
    write(path, (temporary) => writeFileSync(temporary, "other"));
    expect(readFileSync(path, "utf8")).toBe("other");
  });

  it("leaves nothing behind when it cannot be made", () => {
    const failing = (temporary: string) => {
      writeFileSync(temporary, "half");
      throw new Error("no compiler");
    };
    expect(() => make(join(folder, "x.so"), failing)).toThrow("no compiler");
    expect(readdirSync(folder)).toEqual([]);
  });

  it("is pruned from what was used longest ago, never what was used within the hour", () => {
    file("new-large", 100, 0.5);
    file("used", 30, 2);
    file("old", 30, 3);
    file("older", 30, 4);
    file("crashed.tmp", 1, 2);
    file("being-written.tmp", 1, 0.5);
    mkdirSync(join(folder, "empty"));
    prune(folder, 200 + 4096);
    expect(readdirSync(folder).sort()).toEqual(["being-written.tmp", "empty", "new-large", "old", "older", "used"]);
    make(join(folder, "older"), () => expect.unreachable());
    rmSync(join(folder, "empty"), { recursive: true });
    prune(folder, 165);
    expect(readdirSync(folder).sort()).toEqual(["being-written.tmp", "new-large", "older", "used"]);
    prune(folder, 0);
    expect(readdirSync(folder).sort()).toEqual(["being-written.tmp", "new-large", "older"]);
  });
});
