import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { engine, findClang } from "../src/index.ts";
import { withClang } from "./clang.ts";

const local = (name: string) => fileURLToPath(new URL(name, import.meta.url));

withClang("engine.h from C", () => {
  it("compiles text through the command, reflects and runs", () => {
    const folder = mkdtempSync(join(tmpdir(), "metal-sim-host-"));
    try {
      const { library } = engine();
      const program = join(folder, "host");
      const built = spawnSync(
        findClang().path,
        [
          "-x",
          "c",
          "-Wall",
          "-Wextra",
          "-Werror",
          local("native_host.c"),
          "-x",
          "none",
          library,
          "-o",
          program,
          `-Wl,-rpath,${dirname(library)}`,
        ],
        { encoding: "utf8" },
      );
      expect(built.stderr).toBe("");
      const { stdout, status } = spawnSync(program, [process.execPath, local("../bin/metal-sim.mjs")], {
        encoding: "utf8",
      });
      const outside =
        "out-of-bounds twice: out of bounds: 4-byte read of `in` at byte 132, which has 132 bytes, at twice.metal:5 by " +
        "thread 1 of threadgroup (1, 0, 0)";
      expect(stdout.split("\n")).toEqual([
        "Untranslatable: nonsense.metal:1: `#include <metal",
        "twice: 3 arguments, twice.metal:3, none called thrice: -1",
        "float in 0 1",
        "0 64 -1",
        outside,
        "0 64 -1",
        outside,
        "",
      ]);
      expect(status).toBe(0);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
