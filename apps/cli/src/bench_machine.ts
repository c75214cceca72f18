import { limitsFor } from "./bench_limits.ts";
import { REPORT_OPTIONS, reportHead, reportWriter } from "./bench_output.ts";
import { command } from "./contract.ts";
import { endSoonAfter } from "./interrupt.ts";
import { counts } from "./options.ts";

export const benchMachine = command({
  name: "bench machine",
  summary: "Measure what this machine's processor and memory can do at best.",
  arguments: {},
  options: { threads: counts("numbers of threads", [1, 2]), ...REPORT_OPTIONS },
  async run({ threads, json, html }, signal) {
    endSoonAfter(signal);
    const write = reportWriter("bench machine", { json, html });
    const limits = await limitsFor(threads);
    write({ ...reportHead("mlxts bench machine"), limits, verified: null, rows: [] });
  },
});
