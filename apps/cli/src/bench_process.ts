import { spawn } from "node:child_process";

/** The end of a process that did not do its work. */
export class ProcessFailed extends Error {}

/** Ends a process and those that it has started. */
function killGroup(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    // A process group of its own on systems that have them.
    process.kill(process.platform === "win32" ? pid : -pid, "SIGKILL");
  } catch {
    // It has ended.
  }
}

const lastLine = (text: string) => text.trim().split("\n").at(-1)?.trim() ?? "";

/**
 * Runs a program, waits for its end, and returns what it has printed. `signal`, and the end of this process, end it with
 * all that it has started. Its standard input stays open until it has ended.
 * @throws ProcessFailed when it could not be started or failed; the reason of `signal`
 */
export function runProgram(words: readonly string[], signal: AbortSignal): Promise<string> {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const [program, ...args] = words as [string, ...string[]];
    const child = spawn(program, args, { stdio: "pipe", detached: process.platform !== "win32" });
    const printed = { stdout: "", stderr: "" };
    for (const name of ["stdout", "stderr"] as const)
      child[name].setEncoding("utf8").on("data", (text) => {
        printed[name] += text;
      });
    // It may end before it has read anything.
    child.stdin.on("error", () => undefined);
    const kill = () => killGroup(child.pid);
    process.on("exit", kill);
    signal.addEventListener("abort", kill);
    const ended = (finish: () => void) => {
      process.off("exit", kill);
      signal.removeEventListener("abort", kill);
      finish();
    };
    child.once("error", (error) => ended(() => reject(new ProcessFailed(error.message))));
    child.once("close", (code, by) =>
      ended(() => {
        if (signal.aborted) return reject(signal.reason);
        if (code === 0) return resolve(printed.stdout);
        const end = by ? `was ended by ${by}` : `ended with exit code ${code}`;
        const said = lastLine(printed.stderr);
        reject(new ProcessFailed(said ? `${end}: ${said}` : end));
      }),
    );
  });
}
