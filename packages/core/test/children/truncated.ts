// A process whose file becomes shorter while a checkpoint is open: `mapped`, `explained` (mapped, too) or `read`.
import { truncateSync } from "node:fs";
import { Device, explainTruncatedFiles, openCheckpoint } from "../../src/index.ts";

const [how, path] = process.argv.slice(2);
if (how === "explained") {
  explainTruncatedFiles();
  explainTruncatedFiles();
}
const device = Device.open("cpu");
const checkpoint = await openCheckpoint(device, path as string, { map: how !== "read" });
truncateSync(path as string, 4096);
process.stdout.write(`${checkpoint.tensor("x").readSync().at(-1)}\n`);
