// Independent dispatches of as many threadgroups each as its arguments say, in one group: DISPATCHES GROUPS THREADS ORDER.
import { Device } from "../../src/index.ts";
import { increment } from "../kernels/probe.ts";

const [dispatches = 0, groups = 0, threads = 0] = process.argv.slice(2).map(Number);
using device = Device.open("cpu", { threads, order: process.argv[5] as "forward" | "reverse" });
const x = device.tensor("u32", [groups]);
const out = device.tensor("u32", [dispatches, groups]);
const encoder = device.encoder({ barriers: "manual" });
for (let i = 0; i < dispatches; i++) increment(encoder, { x, out: out.slice(i, i + 1).reshape([groups]) }, { groups });
await encoder.commit();
process.stdout.write(`${(out.readSync() as Uint32Array).every((value) => value === 1)}\n`);
