import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { Device, openCheckpoint, readPlainFile, readSafetensors } from "../src/index.ts";
import { caught, message, rejected, testFolder } from "./helpers.ts";

const folder = testFolder();
const pointer =
  "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";
const lfs = "is a Git LFS pointer, not the file that it stands for: run `git lfs pull` in its directory";

describe("readPlainFile", () => {
  it("reads a file, and refuses what is none, what is too large and what cannot be found", () => {
    const path = join(folder, "plain.json");
    writeFileSync(path, "{}");
    expect(Buffer.from(readPlainFile(path, 2)).toString()).toBe("{}");
    expect(message(() => readPlainFile(path, 1))).toBe(`${path} has 2 bytes, more than the 1 that are read`);
    expect(message(() => readPlainFile(folder, 1))).toBe(`${folder} is not a file`);
    const missing = join(folder, "none");
    expect(caught(() => readPlainFile(missing, 1))).toMatchObject({
      code: "Io",
      message: `cannot open ${missing}: ENOENT: no such file or directory`,
      details: { systemCode: "ENOENT" },
    });
    expect(message(() => readPlainFile(undefined as never, 1))).toBe(
      "readPlainFile: `path` must be a string, got undefined",
    );
  });

  it.skipIf(process.platform === "win32")("does not wait for a pipe", () => {
    const pipe = join(folder, "pipe");
    execFileSync("mkfifo", [pipe]);
    expect(caught(() => readPlainFile(pipe, 10))).toMatchObject({ code: "Io", message: `${pipe} is not a file` });
  });
});

describe("a Git LFS pointer", () => {
  it("is named, as a plain file, as a shard and as an index", async () => {
    using device = Device.open("cpu");
    const path = join(folder, "model.safetensors");
    writeFileSync(path, pointer);
    expect(message(() => readPlainFile(path, 1000))).toBe(`${path} ${lfs}`);
    expect(message(() => readSafetensors(path))).toBe(`${path}: ${lfs}`);
    expect((await rejected(openCheckpoint(device, folder))).message).toBe(`${path}: ${lfs}`);
    const sharded = join(folder, "sharded");
    mkdirSync(sharded);
    const index = join(sharded, "model.safetensors.index.json");
    writeFileSync(index, pointer);
    expect((await rejected(openCheckpoint(device, sharded))).message).toBe(`${index} ${lfs}`);
  });

  it.skipIf(process.platform === "win32")("index that is a pipe is not waited for", async () => {
    using device = Device.open("cpu");
    const sharded = join(folder, "piped");
    mkdirSync(sharded);
    execFileSync("mkfifo", [join(sharded, "model.safetensors.index.json")]);
    expect(await rejected(openCheckpoint(device, sharded))).toMatchObject({ code: "Io" });
  });
});

it("a path that is no string is a TypeError", async () => {
  using device = Device.open("cpu");
  expect((await rejected(openCheckpoint(device, undefined as never))).message).toBe(
    "openCheckpoint: `path` must be a string, got undefined",
  );
  expect(message(() => readSafetensors(7 as never))).toBe("readSafetensors: `path` must be a string, got 7");
});
