// Keeps an ArrayBuffer, and so the memory, of a device that is disposed until the process ends.
import { Device } from "../../src/index.ts";

const device = Device.open();
const buffer = device.buffer(64);
const bytes = buffer.arrayBuffer();
device.dispose();
process.on("exit", () => process.stdout.write(`${bytes.byteLength}\n`));
