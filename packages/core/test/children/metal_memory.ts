// Uses memory of the Metal device as its argument says and frees it; the simulator reports at exit what is left.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Device, Tensor } from "../../src/index.ts";
import { fill } from "../internals.ts";
import { increment, limit } from "../kernels/probe.ts";

const [scenario] = process.argv.slice(2);
const QUARTER = 2 ** 16; // elements of a quarter of a megabyte

async function run(device: Device, ...tensors: Tensor[]): Promise<void> {
  const encoder = device.encoder();
  for (const x of tensors) increment(encoder, { x, out: x });
  await encoder.commit();
}
const quarters = (device: Device, count: number) =>
  Array.from({ length: count }, () => device.tensor("u32", [QUARTER]));

async function everything(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "mlxts-"));
  process.env.MLXTS_CAPTURE = join(folder, "all.gputrace");
  const device = Device.open("metal");
  delete process.env.MLXTS_CAPTURE;
  const x = device.tensor("u32", [8]);
  await run(device, x);
  const mapped = await device.mapFile(process.execPath, 4096);
  const out = device.tensor("u32", [1024]);
  for (const profile of [false, true]) {
    const encoder = device.encoder();
    increment(encoder, { x: new Tensor(mapped, "u32", [1024]), out });
    for (let i = 0; i < 3; i++) limit(encoder, { x }, { limit: i });
    await encoder.commit({ profile }).then(null, () => {});
  }
  fill(out.buffer, 1);
  mapped.dispose();
  await out.read();
  device.dispose();
  rmSync(folder, { recursive: true });
}

if (scenario === "everything") await everything();
else {
  const device = Device.open("metal");
  if (scenario === "in-turn")
    for (let i = 0; i < 20; i++) {
      const [x] = quarters(device, 1) as [Tensor];
      await run(device, x);
      x.dispose();
    }
  else if (scenario === "at-once") {
    const all = quarters(device, 8);
    await run(device, ...all);
    for (const x of all) x.dispose();
  } else if (scenario === "fewer") {
    const [first, ...others] = quarters(device, 4) as [Tensor, ...Tensor[]];
    await run(device, first, ...others);
    for (const x of others) x.dispose();
    await run(device, first);
  }
  device.dispose();
}
process.stdout.write("done\n");
