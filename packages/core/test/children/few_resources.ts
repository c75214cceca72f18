// A process without file descriptors, or without threads, that uses devices: each call works, or throws an error that says why.
import { closeSync, openSync } from "node:fs";
import { Device, type DeviceKind, openCheckpoint } from "../../src/index.ts";
import { increment } from "../kernels/probe.ts";

const [kind, path = "", what] = process.argv.slice(2) as [DeviceKind, string, string];
const outcomes: Record<string, string> = {};
async function attempt(name: string, act: () => unknown): Promise<void> {
  try {
    await act();
    outcomes[name] = "works";
  } catch (error) {
    const { code, name: type, message } = error as Error & { code?: string };
    outcomes[name] = code ?? `${type}: ${message}`;
  }
}

async function useDevice(device: Device): Promise<void> {
  const x = device.tensor("u32", [8]);
  const encoder = device.encoder();
  increment(encoder, { x, out: x });
  await encoder.commit();
  await x.read();
}

// What a first use would open must be open before: this is about what comes after.
const before = Device.open(kind, { threads: 1 });
await useDevice(before);
const taken: number[] = [];
if (what === "descriptors")
  try {
    for (;;) taken.push(openSync("/dev/null", "r"));
  } catch {}
await attempt("use", () => useDevice(before));
await attempt("open", async () => {
  const device = Device.open(kind, { threads: 64 });
  await useDevice(device);
  device.dispose();
});
for (const map of [true, false])
  await attempt(map ? "map" : "read", async () => (await openCheckpoint(before, path, { map })).dispose());
for (const each of taken) closeSync(each);
await attempt("after", async () => {
  await useDevice(before);
  (await openCheckpoint(before, path)).dispose();
});
process.stdout.write(JSON.stringify(outcomes));
