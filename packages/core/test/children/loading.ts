// A process or worker that ends while a file is copied into a device's memory, as its argument says.
import { isMainThread, parentPort, workerData } from "node:worker_threads";
import { Device } from "../../src/index.ts";

const [how, path, bytes] = isMainThread ? process.argv.slice(2) : (workerData as string[]);
const device = Device.open();
const controller = new AbortController();
let reports = 0;
const loading = device.mapFile(path as string, Number(bytes), {
  signal: controller.signal,
  onProgress: () => {
    if (reports++ > 0) return;
    if (how === "exit") process.exit(7);
    if (how === "dispose") device.dispose();
    if (how === "abort") controller.abort(new Error("enough"));
    parentPort?.postMessage("running");
  },
});
if (how === "throw") throw new Error("uncaught");
// "natural": the process goes on until the file is there, although nobody waits for it but this.
void loading.then(
  (buffer) => process.stdout.write(`${new Uint8Array(buffer.readSync()).at(-1)}\n`),
  (error: Error) => process.stdout.write(`${error.message}\n`),
);
