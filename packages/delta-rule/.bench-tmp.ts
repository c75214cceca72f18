import { pathToFileURL } from "node:url";

const { Device } = await import("/work/main/packages/core/src/index.ts");
const [file, pattern = "", threadsText = "1", profile] = process.argv.slice(2);
const bench = (await import(pathToFileURL(file).href)).default;
for (const threads of threadsText.split(",").map(Number)) {
  const device = Device.open("cpu", { threads });
  for (const c of bench.cases) {
    if (!new RegExp(pattern).test(c.name)) continue;
    const s = c.setup(device);
    const e = device.encoder({ arena: device.arena(1 << 29) });
    s.encode(e);
    const r = e.finish();
    const times: number[] = [];
    const end = performance.now() + 700;
    for (let i = 0; i < 5 || performance.now() < end; i++) times.push((await r.replay()).milliseconds);
    times.sort((a, b) => a - b);
    const ms = times[times.length >> 1];
    console.log(
      `${threads}t ${c.name}: median ${(ms * 1e3).toFixed(1)} us min ${(times[0] * 1e3).toFixed(1)} | ${(c.bytes / ms / 1e6).toFixed(1)} GB/s ${(c.flops / ms / 1e6).toFixed(1)} GF/s`,
    );
    if (profile) {
      const p = await r.replay({ profile: true });
      console.log(JSON.stringify(p));
    }
  }
  device.dispose();
}
