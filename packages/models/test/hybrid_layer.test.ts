import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { SOURCE_HOOKS } from "@mlxts/test-kit/source";
import { expect, it } from "vitest";

it("the example of a layer of your own gives the same for a prompt at once and token by token", () => {
  const args = ["--import", SOURCE_HOOKS, fileURLToPath(new URL("../examples/hybrid_layer.mjs", import.meta.url))];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
  expect(stderr).toBe("");
  expect(stdout).toMatch(/^75 tokens at once and one by one: rms \d\.\d+, difference \d\.\de-[78]\n$/);
  expect(status).toBe(0);
}, 240_000);
