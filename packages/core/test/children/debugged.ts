// Two dispatches, whose lines MLXTS_DEBUG prints.
import { Device } from "../../src/index.ts";
import { increment } from "../kernels/probe.ts";

using device = Device.open("cpu", { threads: 2 });
using x = device.tensor("u32", [64]);
const encoder = device.encoder();
increment(encoder, { x, out: x }, { groups: 4 });
increment(encoder, { x, out: x }, { groups: 4 });
await encoder.commit();
