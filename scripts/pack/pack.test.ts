// `pack` refuses packages without the binaries that the README promises.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { temporaryFolder } from "@mlxts/test-kit/temporary_folder";
import { describe, expect, it } from "vitest";
import { opPackages, root } from "../check/packages.ts";
import { missingBinaries, promisedBinaries } from "./promised.mjs";

/** A clone with the shaders of this one and nothing built. */
function emptyClone(): string {
  const clone = temporaryFolder("promised");
  for (const path of promisedBinaries(root)) {
    const shader = path.replace(/prebuilds\/cuda\/(\w+)\.ptx\.br$/, "native/$1.metal");
    mkdirSync(join(clone, path.split("prebuilds")[0] as string, "native"), { recursive: true });
    if (shader !== path) writeFileSync(join(clone, shader), "");
  }
  return clone;
}

describe("promised binaries", () => {
  it("are those of each op for all platforms", () => {
    const promised = promisedBinaries(root);
    for (const name of opPackages)
      for (const file of [
        "linux-x64/%.sse2.so",
        "linux-x64/%.avx512.so",
        "linux-arm64/%.neon.so",
        "darwin-arm64/%.neon.so",
      ])
        expect(promised).toContain(join("packages", name, "prebuilds", file.replace("%", name)));
    expect(promised).toContain("packages/core/prebuilds/darwin-arm64/core.node");
    expect(promised).toContain("packages/norms/prebuilds/cuda/rms_norm.ptx.br");
  });

  it("are missed one by one", () => {
    const clone = emptyClone();
    const promised = promisedBinaries(clone);
    expect(promised).toEqual(promisedBinaries(root));
    expect(missingBinaries(clone)).toEqual(promised);
    for (const path of promised) {
      mkdirSync(dirname(join(clone, path)), { recursive: true });
      writeFileSync(join(clone, path), "");
    }
    expect(missingBinaries(clone)).toEqual([]);
    for (const path of promised.filter((each) => /darwin|linux-arm64\/core|cuda\/rms/.test(each))) {
      rmSync(join(clone, path));
      expect(missingBinaries(clone)).toEqual([path]);
      writeFileSync(join(clone, path), "");
    }
  });

  it("are asked for unless it is this machine's alone that are packed", () => {
    const folder = join(temporaryFolder("pack"), "out");
    const pack = (...args: string[]) =>
      spawnSync(process.execPath, [join(root, "scripts", "pack", "pack.mjs"), ...args], { encoding: "utf8" });
    for (const args of [[], ["a", "b"], [folder, "--quick"], [folder, "--all"]]) {
      const { status, stderr } = pack(...args);
      expect([status, stderr]).toEqual([1, "usage: node scripts/pack/pack.mjs FOLDER [--this-machine [--quick]]\n"]);
    }
    expect(existsSync(folder)).toBe(false);
  });
});
