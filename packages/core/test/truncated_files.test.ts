// Files that become shorter while they are open, and files that are read in place of being mapped.

import { truncateSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { Device, openCheckpoint, writeSafetensors } from "../src/index.ts";
import { message, rejected, testFolder } from "./helpers.ts";
import { runChild } from "./run_child.ts";

const MIB = 2 ** 20;
const folder = testFolder();

function fileOf(name: string, bytes = MIB): string {
  const path = join(folder, name);
  writeSafetensors(path, [["x", { dtype: "u8", shape: [bytes], data: new Uint8Array(bytes).fill(7) }]]);
  return path;
}

describe("a file that becomes shorter", () => {
  it.each([
    ["mapped", "SIGBUS", "", ""],
    [
      "explained",
      "SIGBUS",
      "",
      "mlxts: a mapped file has become shorter while it was in use (SIGBUS) - open files that change with map: false\n",
    ],
    ["read", null, "7\n", ""],
  ])("ends a process that has it %s as it should", async (how, signal, stdout, stderr) => {
    const end = await runChild("truncated", [how, fileOf(how)]);
    expect(end).toEqual({ code: signal ? null : 0, signal, stdout, stderr });
  });
});

describe("a file that is read into memory", () => {
  it("has all bytes, tells how far it has come, and cannot be written", async () => {
    using device = Device.open("cpu");
    const bytes = 130 * MIB;
    const reports: [number, number][] = [];
    const options = { map: false, onProgress: (loaded: number, total: number) => void reports.push([loaded, total]) };
    using checkpoint = await openCheckpoint(device, fileOf("read", bytes), options);
    const total = checkpoint.byteLength;
    expect(reports.at(-1)).toEqual([total, total]);
    expect(reports.every((report) => report[1] === total)).toBe(true);
    const x = checkpoint.tensor("x");
    expect(x.readSync().every((value) => value === 7)).toBe(true);
    expect(device.counters).toMatchObject({ liveBuffers: 1, liveBytes: total, copiedTensors: 0 });
    expect(message(() => x.buffer.write(new Uint8Array(1)))).toContain("read-only");
    expect(message(() => x.buffer.arrayBuffer())).toContain("read-only");
  });

  it("leaves nothing when it is aborted, its progress throws, the device goes, or the file is too short", async () => {
    using device = Device.open("cpu");
    const path = fileOf("ends", 200 * MIB);
    const reason = new Error("enough");
    const abort = new AbortController();
    const begin = (options: object) => rejected(openCheckpoint(device, path, { map: false, ...options }));
    const aborted = begin({ signal: abort.signal });
    abort.abort(reason);
    expect(await aborted).toBe(reason);
    const onProgress = () => {
      throw reason;
    };
    expect(await begin({ onProgress })).toBe(reason);
    expect(device.counters).toMatchObject({ liveBuffers: 0, liveBytes: 0 });
    const other = Device.open("cpu");
    const gone = rejected(openCheckpoint(other, path, { map: false }));
    other.dispose();
    expect(await gone).toMatchObject({ code: "Disposed" });
    const short = rejected(device.mapFile(path, 200 * MIB, { map: false, onProgress: () => truncateSync(path, MIB) }));
    expect(await short).toMatchObject({ code: "Io", message: `cannot map ${path}: the file has become shorter` });
    expect(await rejected(device.mapFile(path, 200 * MIB, { map: false }))).toMatchObject({ code: "Io" });
    expect(device.counters).toMatchObject({ liveBuffers: 0, liveBytes: 0 });
    expect((await begin({ map: 1 })).message).toContain("`map` must be a boolean");
  });
});
