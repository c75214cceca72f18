import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

const file = (path: string) => fileURLToPath(new URL(`../../../${path}`, import.meta.url));

it("the example of a layer of one's own gives the same for a prompt at once and token by token", () => {
  const args = [file("scripts/run-source.mjs"), file("packages/models/examples/hybrid_layer.mjs")];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
  expect(stderr).toBe("");
  expect(stdout).toMatch(/^75 tokens at once and one by one: rms \d\.\d+, difference \d\.\de-[78]\n$/);
  expect(status).toBe(0);
}, 240_000);
