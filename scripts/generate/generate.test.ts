import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { SOURCE_HOOKS } from "@mlxts/test-kit/source";
import { expect, it } from "vitest";

const script = fileURLToPath(new URL("generate.ts", import.meta.url));

it("generated files agree with the declarations", () => {
  const check = spawnSync(process.execPath, ["--import", SOURCE_HOOKS, script, "--check"], { encoding: "utf8" });
  expect(check.stderr).toBe("");
  expect(check.status).toBe(0);
});
