import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { bundled } from "@mlxts/test-kit/bundled";

export interface ChildEnd {
  code: number | null;
  /** `SIGKILL` when it ran past its time. */
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
}

/** Runs a file of `children/` in a process of its own; `timeout` in milliseconds. */
export async function runChild(
  name: string,
  args: string[] = [],
  env: Record<string, string> = {},
  timeout?: number,
): Promise<ChildEnd> {
  const file = fileURLToPath(await bundled(`packages/core/test/children/${name}.ts`));
  return runProgram(process.execPath, ["--expose-gc", "--enable-source-maps", file, ...args], env, timeout);
}

/** Runs a program; `timeout` in milliseconds. */
export function runProgram(
  path: string,
  args: string[],
  env: Record<string, string> = {},
  timeout?: number,
): Promise<ChildEnd> {
  const child = spawn(path, args, { env: { ...process.env, ...env }, timeout, killSignal: "SIGKILL" });
  let stdout = "";
  let stderr = "";
  child.stdout.on("data", (text) => {
    stdout += text;
  });
  child.stderr.on("data", (text) => {
    stderr += text;
  });
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code, signal) => resolve({ code, signal, stdout, stderr }));
  });
}
