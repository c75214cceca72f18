import { execFileSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { Device, openCheckpoint, readSafetensors, writeSafetensors } from "@mlxts/core";
import { afterAll, describe, expect, it } from "vitest";
import { quantizeCheckpoint } from "../src/index.ts";
import { temporary, tiny, tiny4bit, withConfig } from "./fixtures.ts";
import { type Conversion, conversions, hashesOf } from "./mlx_hashes.ts";

const device = Device.open();
afterAll(() => device.dispose());

const variants = conversions("mlx_checkpoint_hashes.json");

describe("quantizeCheckpoint", () => {
  it.each(["4bit-g64", "8bit-g32", "4bit-g32", "4bit-g128"])(
    "equals mlx_lm.convert word for word: %s",
    async (variant) => {
      const { bits, group_size: groupSize, tensors } = variants[variant] as Conversion;
      const out = join(temporary(), "out");
      await quantizeCheckpoint(device, tiny, out, { bits, groupSize });
      expect(hashesOf(out)).toEqual(tensors);
    },
  );

  it("writes the directory that mlx-lm opens", async () => {
    const out = join(temporary(), "out");
    const progress: number[] = [];
    await quantizeCheckpoint(device, tiny, out, { onProgress: (done) => progress.push(done) });
    expect(progress).toEqual(progress.map((_, i) => i + 1));
    expect(readdirSync(out).sort()).toEqual([
      "config.json",
      "generation_config.json",
      "model.safetensors",
      "model.safetensors.index.json",
      "tokenizer.json",
    ]);
    const config = JSON.parse(readFileSync(join(out, "config.json"), "utf8"));
    const theirs = JSON.parse(readFileSync(join(tiny4bit, "config.json"), "utf8"));
    expect(config.quantization).toEqual(theirs.quantization);
    expect(config.quantization_config).toEqual(theirs.quantization_config);
    expect(config.model_type).toBe(theirs.model_type);
    const index = JSON.parse(readFileSync(join(out, "model.safetensors.index.json"), "utf8"));
    const theirIndex = JSON.parse(readFileSync(join(tiny4bit, "model.safetensors.index.json"), "utf8"));
    expect(index.weight_map).toEqual(theirIndex.weight_map);
    expect(index.metadata.total_size).toBe(theirIndex.metadata.total_size);
    using checkpoint = await openCheckpoint(device, out);
    expect(checkpoint.metadata).toEqual({ format: "mlx" });
  });

  it("refuses a quantized checkpoint, odd settings and a full folder, and leaves nothing behind", async () => {
    const folder = temporary();
    const out = join(folder, "out");
    await expect(quantizeCheckpoint(device, tiny4bit, out)).rejects.toThrow(
      "quantize: `checkpoint` must not be quantized already, got a quantized checkpoint — start from the original weights",
    );
    await expect(quantizeCheckpoint(device, tiny, out, { bits: 3 as 4 })).rejects.toThrow(
      "quantize: `bits` must be 4 or 8, got 3",
    );
    await expect(quantizeCheckpoint(device, tiny, out, { groupSize: 48 as 64 })).rejects.toThrow(
      "quantize: `groupSize` must be 32, 64 or 128, got 48",
    );
    const stop = quantizeCheckpoint(device, tiny, out, {
      onProgress: () => {
        throw new RangeError("stopped");
      },
    });
    await expect(stop).rejects.toThrow("stopped");
    expect(readdirSync(folder)).toEqual([]);
    mkdirSync(out);
    writeFileSync(join(out, "mine"), "");
    await expect(quantizeCheckpoint(device, tiny, out)).rejects.toThrow("must be new or an empty directory");
    expect(existsSync(join(out, "mine"))).toBe(true);
    const file = join(out, "mine");
    await expect(quantizeCheckpoint(device, tiny, file)).rejects.toThrow("must be new or an empty directory");
    for (const nowhere of [join(file, "out"), join(folder, "none", "out")])
      await expect(quantizeCheckpoint(device, tiny, nowhere)).rejects.toMatchObject({ code: "Io" });
    expect(readdirSync(folder)).toEqual(["out"]);
  });

  it("leaves out the output matrix of a tied model, and refuses dtypes it cannot write", async () => {
    const { tensors } = readSafetensors(join(tiny, "model.safetensors"));
    const embedding = tensors.get("model.embed_tokens.weight");
    if (!embedding) throw new Error("the fixture has no embedding");
    const folder = withConfig(() => {});
    writeSafetensors(join(folder, "model.safetensors"), [...tensors, ["lm_head.weight", embedding]]);
    const out = join(temporary(), "out");
    await quantizeCheckpoint(device, folder, out);
    expect(
      [...readSafetensors(join(out, "model.safetensors")).tensors.keys()].filter((name) => name.includes("lm_head")),
    ).toEqual([]);

    const header = JSON.stringify({
      "model.layers.0.linear_attn.A_log": { dtype: "F64", shape: [1], data_offsets: [0, 8] },
    });
    const bytes = Buffer.alloc(8 + header.length + 8);
    bytes.writeBigUInt64LE(BigInt(header.length));
    bytes.write(header, 8);
    writeFileSync(join(folder, "model.safetensors"), bytes);
    await expect(quantizeCheckpoint(device, folder, join(temporary(), "out"))).rejects.toMatchObject({
      code: "Safetensors",
      message: expect.stringContaining("A_log has dtype F64; weights must be F32, F16 or BF16"),
    });
  });
});

describe.skipIf(process.platform === "win32")("quantizeCheckpoint and links, pipes and devices", () => {
  /** A copy of the tiny checkpoint, a secret file outside it, and the path of the output. */
  function place() {
    const folder = withConfig(() => {});
    const outside = temporary();
    const secret = join(outside, "secret.txt");
    writeFileSync(secret, "secret");
    return { folder, outside, secret, out: join(temporary(), "out") };
  }

  it("does not copy through links that leave the directory", async () => {
    for (const name of ["tokenizer.json", "chat_template.jinja", "generation_config.json", "config.json"]) {
      const { folder, secret, out } = place();
      rmSync(join(folder, name), { force: true });
      symlinkSync(secret, join(folder, name));
      await expect(quantizeCheckpoint(device, folder, out)).rejects.toMatchObject({
        code: "Io",
        message: `quantize: ${join(folder, name)} is a symbolic link that leaves the directory, to ${realpathSync(secret)}: put the file itself there`,
      });
      expect(readdirSync(dirname(out))).toEqual([]);
    }
    const { folder, outside, out } = place();
    renameSync(join(folder, "model.safetensors"), join(outside, "model.safetensors"));
    symlinkSync(join(outside, "model.safetensors"), join(folder, "model.safetensors"));
    await expect(quantizeCheckpoint(device, folder, out)).rejects.toThrow("leaves the directory");
  });

  it("follows links within the directory, and those of the Hugging Face cache", async () => {
    const { folder, out } = place();
    renameSync(join(folder, "tokenizer.json"), join(folder, "t.json"));
    symlinkSync("t.json", join(folder, "tokenizer.json"));
    await quantizeCheckpoint(device, folder, out);
    expect(lstatSync(join(out, "tokenizer.json")).isFile()).toBe(true);

    const cache = join(temporary(), "models--tiny");
    const snapshot = join(cache, "snapshots", "0123");
    mkdirSync(snapshot, { recursive: true });
    mkdirSync(join(cache, "blobs"));
    for (const [i, name] of ["config.json", "model.safetensors", "tokenizer.json"].entries()) {
      cpSync(join(tiny, name), join(cache, "blobs", `${i}`));
      symlinkSync(`../../blobs/${i}`, join(snapshot, name));
    }
    const second = join(temporary(), "out");
    await quantizeCheckpoint(device, snapshot, second);
    expect(readFileSync(join(second, "tokenizer.json"))).toEqual(readFileSync(join(tiny, "tokenizer.json")));
    writeFileSync(join(cache, "other.json"), "{}");
    symlinkSync("../../other.json", join(snapshot, "special_tokens_map.json"));
    await expect(quantizeCheckpoint(device, snapshot, join(temporary(), "out"))).rejects.toThrow(
      "leaves the directory",
    );
  });

  it("refuses loops of links, pipes, Git LFS pointers and links to nothing", async () => {
    const { folder, out } = place();
    const path = join(folder, "vocab.json");
    const refused = async (message: string) => {
      await expect(quantizeCheckpoint(device, folder, out)).rejects.toMatchObject({
        code: "Io",
        message: expect.stringContaining(message),
      });
      rmSync(path, { force: true });
      expect(existsSync(out)).toBe(false);
    };
    symlinkSync(path, path);
    await refused("ELOOP");
    execFileSync("mkfifo", [path]);
    await refused(`${path} is not a file`);
    symlinkSync("/dev/zero", path);
    await refused(`${path} is not a file`);
    symlinkSync("nowhere", path);
    await refused("ENOENT");
    writeFileSync(path, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
    await refused("is a Git LFS pointer");
  });

  it("does not write through a link, nor into a directory that another call writes", async () => {
    const { outside, out } = place();
    symlinkSync(outside, out);
    await expect(quantizeCheckpoint(device, tiny, out)).rejects.toThrow(
      `quantize: \`out-dir\` must be new or an empty directory, got ${out}`,
    );
    rmSync(join(outside, "secret.txt"));
    await expect(quantizeCheckpoint(device, tiny, out)).rejects.toThrow("must be new or an empty directory");
    rmSync(out);
    const both = await Promise.allSettled([
      quantizeCheckpoint(device, tiny, out),
      quantizeCheckpoint(device, tiny, out),
    ]);
    expect(both.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
    expect(readdirSync(dirname(out))).toEqual(["out"]);
    expect(existsSync(join(out, "model.safetensors"))).toBe(true);
  });
});

describe("quantizeCheckpoint", () => {
  it("ends at an abort, and leaves nothing behind", async () => {
    const folder = temporary();
    const out = join(folder, "out");
    const reason = new Error("enough");
    await expect(quantizeCheckpoint(device, tiny, out, { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    const controller = new AbortController();
    let last = 0;
    const work = quantizeCheckpoint(device, tiny, out, {
      signal: controller.signal,
      onProgress: (done) => {
        last = done;
        if (done === 3) controller.abort(reason);
      },
    });
    await expect(work).rejects.toBe(reason);
    expect(last).toBe(3);
    const late = new AbortController();
    const later = quantizeCheckpoint(device, tiny, out, {
      signal: late.signal,
      onProgress: (done, total) => done === total && late.abort(reason),
    });
    await expect(later).rejects.toBe(reason);
    expect(readdirSync(folder)).toEqual([]);
    await quantizeCheckpoint(device, tiny, out, { signal: new AbortController().signal });
  });

  it("refuses wrong arguments", async () => {
    const out = join(temporary(), "out");
    const missing = join(tiny, "missing");
    for (const [call, message] of [
      [() => quantizeCheckpoint(undefined as never, tiny, out), "quantize: `device` must be a Device, got undefined"],
      [() => quantizeCheckpoint(device, 7 as never, out), "quantize: `hf-dir` must be a string, got 7"],
      [() => quantizeCheckpoint(device, missing, out), `quantize: ${missing} does not exist`],
      [() => quantizeCheckpoint(device, tiny, undefined as never), "quantize: `out-dir` must be a path, got undefined"],
      [() => quantizeCheckpoint(device, tiny, ""), "quantize: `out-dir` must be a path, got "],
      [
        () => quantizeCheckpoint(device, tiny, out, { group: 1 } as never),
        "quantize: `group` must be one of bits, groupSize, onProgress, signal, got an unknown option",
      ],
      [
        () => quantizeCheckpoint(device, tiny, out, { onProgress: 1 as never }),
        "quantize: `onProgress` must be a function, got 1",
      ],
      [
        () => quantizeCheckpoint(device, tiny, out, { signal: 1 as never }),
        "quantize: `signal` must be an AbortSignal, got 1",
      ],
    ] as const)
      await expect(call()).rejects.toThrow(message);
    expect(existsSync(out)).toBe(false);
  });
});
