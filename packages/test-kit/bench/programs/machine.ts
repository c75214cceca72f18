// What this machine can do at best, for one thread and two: pnpm --filter @mlxts/test-kit bench
import { Device } from "@mlxts/core";
import { measureLimits } from "../limits.ts";

const rows: Record<string, Record<string, number>> = {};
for (const threads of [1, 2]) {
  using device = Device.open("cpu", { threads });
  const { gflops, memoryGBs, cacheGBs } = await measureLimits(device);
  const round = (value: number) => Number(value.toPrecision(3));
  rows[`${threads} thread${threads > 1 ? "s" : ""}`] = {
    "GFLOP/s f32": round(gflops),
    "GB/s memory": round(memoryGBs),
    "GB/s cache": round(cacheGBs),
  };
}
console.table(rows);
