// A process with work in flight that ends as its argument says.
import { Device } from "../../src/index.ts";
import { increment } from "../kernels/probe.ts";

const [how = "natural"] = process.argv.slice(2);
const device = Device.open(undefined, { threads: 2 });
const x = device.tensor("u32", [64]);
const encoder = device.encoder();
const microseconds = how === "sync" ? 0 : 60;
for (let i = 0; i < 20; i++) increment(encoder, { x, out: x }, { groups: 64, microseconds });
const recording = encoder.finish();
for (let i = 0; i < 4; i++) void recording.replay();

switch (how) {
  case "natural":
    process.on("beforeExit", () => process.stdout.write(`${x.readSync()[0]}\n`));
    break;
  case "exit":
    process.exit(7);
    break;
  case "throw":
    throw new Error("uncaught");
  case "reject":
    void Promise.reject(new Error("unhandled"));
    break;
  case "dispose":
    x.dispose();
    device.dispose();
    process.stdout.write("disposed\n");
    break;
  case "sync":
    // Without a turn of the event loop, calls that report ended work are still queued when the process ends.
    for (let i = 0; i < 200; i++) recording.replay().waitSync();
    device.dispose();
    process.stdout.write("sync\n");
    break;
  case "later":
    setTimeout(() => process.exit(7), 10);
    break;
  case "idle":
    // Nobody disposes anything, and nothing is in flight: the process must end by itself.
    await recording.replay();
    process.stdout.write("idle\n");
    break;
}
