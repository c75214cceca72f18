import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import type { Peer } from "@mlxts/core/testing";

/**
 * A library for Python as a benchmark peer, in a process that takes its own time. The program reads the work as one line of
 * JSON, with the number of threads, prints a line `ready …`, and then answers each line with µs of one call. The peer is
 * absent where there is no such Python, or the program ends before it is ready.
 */
export function pythonPeer(
  library: string,
  { about, program, work }: { about: string; program: string; work: object },
): Peer {
  return {
    name: `${library} ${about}`,
    async setup(threads, { python = "python3" } = {}) {
      const child = spawn(python, ["-c", program], { stdio: ["pipe", "pipe", "ignore"] });
      const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
      child.on("error", () => {});
      // A process that has ended answers no more; its lines are over then.
      child.stdin.on("error", () => {});
      const answer = async (ask: string) => {
        child.stdin.write(`${ask}\n`);
        const { value, done } = await lines.next();
        return done ? undefined : (value as string);
      };
      const dispose = () => void child.kill();
      const ready = await answer(JSON.stringify({ ...work, threads }));
      if (!ready?.startsWith("ready ")) return dispose();
      return {
        async run() {
          const microseconds = Number(await answer(""));
          if (!(microseconds > 0)) throw new Error(`${library}'s process has ended while it was measured`);
          return microseconds;
        },
        dispose,
      };
    },
  };
}
