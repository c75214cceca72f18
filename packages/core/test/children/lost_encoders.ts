// Prints whether a tensor is refused while an encoder that writes it is referenced, and after it no longer is.
import { setTimeout as sleep } from "node:timers/promises";
import { type CommandEncoder, Device, type Recording, type Tensor } from "../../src/index.ts";
import { increment } from "../kernels/probe.ts";

declare const gc: () => void;

const device = Device.open("cpu", { threads: 1 });
const refused = (tensor: Tensor): boolean => {
  try {
    tensor.readSync();
    return false;
  } catch {
    return true;
  }
};
const record = (): { out: Tensor; encoder: CommandEncoder } => {
  const encoder = device.encoder();
  return { encoder, out: increment(encoder, { x: device.tensor("u32", [4]) }) };
};
async function collect(out: Tensor): Promise<boolean> {
  for (let i = 0; i < 100 && refused(out); i++) {
    await sleep(5);
    gc();
  }
  return refused(out);
}

let held: CommandEncoder | Recording | undefined;
const open = (() => {
  const { encoder, out } = record();
  held = encoder;
  return out;
})();
gc();
const told = [refused(open) && held !== undefined];
held = undefined;
told.push(await collect(open));
const finished = (() => {
  const { encoder, out } = record();
  held = encoder.finish();
  return out;
})();
gc();
told.push(refused(finished) && held !== undefined);
held = undefined;
told.push(await collect(finished));
process.stdout.write(told.join(" "));
