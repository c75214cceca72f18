// Deno and Bun, where `npm run nodes` has installed them: a program gives there what it gives on Node.js.
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { bundled } from "@mlxts/test-kit/bundled";
import { afterAll, describe, expect, it } from "vitest";
import { runtimes } from "../native/build_tools.mjs";

const folder = mkdtempSync(join(tmpdir(), "mlxts-runtimes-"));
afterAll(() => rmSync(folder, { recursive: true }));
const ARGUMENTS: Record<string, string[]> = { Deno: ["run", "--allow-all", "--no-prompt"], Bun: [] };

async function run(name: string, program: string) {
  const file = fileURLToPath(await bundled("packages/models/test/children/other_runtime.ts"));
  const args = [...(ARGUMENTS[name] ?? []), file, join(folder, `${name}.safetensors`)];
  const { status, signal, stdout, stderr } = spawnSync(program, args, { encoding: "utf8" });
  return { status, signal, stdout, stderr };
}

describe.each(runtimes())("$name", ({ name, program }) => {
  const title = "runs norms, products, quantizing and a mapped checkpoint, and ends with a device open";
  if (program === undefined) it.skip(`${title} (skipped: not installed, see \`npm run nodes\`)`, () => {});
  else
    it(title, async () => {
      const expected = await run("Node.js", process.execPath);
      expect(expected).toMatchObject({ status: 0, signal: null, stderr: "" });
      expect(await run(name, program)).toEqual(expected);
    });
});
