import { type Job, runJob } from "./bench_measure.ts";
import { argument, command } from "./contract.ts";

export const benchChild = command({
  name: "bench-child",
  summary: "The process in which `bench` makes one measurement of a model.",
  hidden: true,
  arguments: { job: argument("the measurement, as JSON") },
  options: {},
  async run({ job }, signal) {
    signal.addEventListener("abort", () => process.exit(1));
    // The process that has started this one holds the other end.
    process.stdin.once("end", () => process.exit(1)).resume();
    const result = await runJob(JSON.parse(job) as Job);
    process.stdout.write(`${JSON.stringify(result)}\n`);
    process.stdin.destroy();
  },
});
