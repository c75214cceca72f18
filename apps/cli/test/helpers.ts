import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { temporaryFolder } from "@mlxts/test-kit/temporary_folder";
import { vi } from "vitest";
import { main } from "../src/main.ts";

export const root = fileURLToPath(new URL("../../../", import.meta.url));
export const tiny = join(root, "fixtures", "tiny-qwen3.5");
export const program = join(root, "apps", "cli", "bin", "mlxts.mjs");

/** A folder for the files of one test file. */
export const testFolder = () => temporaryFolder("cli");

/** The command line in a process of its own. */
export function mlxts(...args: string[]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [program, ...args], { encoding: "utf8" });
  return { status, stdout, stderr };
}

/** The command line in this process. */
export async function inProcess(...args: string[]) {
  const written = { stdout: "", stderr: "" };
  const spies = (["stdout", "stderr"] as const).map((name) =>
    vi.spyOn(process[name], "write").mockImplementation(((text: unknown, ...rest: unknown[]) => {
      written[name] += text;
      const done = rest.at(-1);
      if (typeof done === "function") done();
      return true;
    }) as typeof process.stdout.write),
  );
  try {
    const status = await main(args);
    return { status, ...written };
  } finally {
    for (const spy of spies) spy.mockRestore();
  }
}

/** The ids of eight tokens that a model in f32 writes after these ids, the likeliest each time. */
export async function greedyIds(model: string, ids: Iterable<number>): Promise<number[]> {
  const options = ["--max-tokens", "8", "--activation-dtype", "f32", "--temp", "0", "--json"];
  const { stdout } = await inProcess("generate", model, "--ids", [...ids].join(), ...options);
  return JSON.parse(stdout).ids;
}
