// The commands on models of Qwen with experts: they are shown, quantized, and run.
import { join } from "node:path";
import { readSafetensors } from "@mlxts/core";
import { compare } from "@mlxts/core/testing";
import { fixture, goldens, unpackedCheckpoint } from "@mlxts/test-kit/goldens";
import { describe, expect, it } from "vitest";
import { greedyIds, inProcess, testFolder } from "./helpers.ts";

describe.each([
  {
    name: "tiny-qwen3-next",
    path: unpackedCheckpoint("tiny-qwen3-next"),
    groupSize: "64",
    experts: "8 in each of 4 layers, of which a token goes to 2, and to shared experts",
  },
  {
    name: "tiny-qwen3.5-moe",
    path: fixture("tiny-qwen3.5-moe"),
    groupSize: "32",
    experts: "4 in each of 2 layers, of which a token goes to 2, and to shared experts",
  },
])("$name", ({ name, path, groupSize, experts }) => {
  const recorded = goldens(`${name}/reference.safetensors`);
  const ids = Array.from(recorded.numbers("prompt0.ids"));
  const folder = testFolder();
  const four = join(folder, "four");

  const greedyOf = (file: typeof recorded) => Array.from(file.numbers("prompt0.greedy").slice(0, 8));

  it("inspect shows its experts", async () => {
    const { status, stdout } = await inProcess("inspect", path);
    expect(status).toBe(0);
    expect(stdout).toMatch(/^runs +yes, with mlxts/m);
    expect(stdout).toContain(experts);
  });

  it("generate writes what is recorded", async () => expect(await greedyIds(path, ids)).toEqual(greedyOf(recorded)));

  it("quantize writes a model whose text is that of mlx-lm's conversion", async () => {
    expect(await inProcess("quantize", path, four, "--group-size", groupSize)).toMatchObject({ status: 0 });
    expect(await greedyIds(four, ids)).toEqual(greedyOf(goldens(`goldens/${name}.mlx_lm.safetensors`)));
  });

  it("logits are those recorded", async () => {
    const out = join(folder, "logits.safetensors");
    expect(
      await inProcess("logits", path, "--ids", ids.join(), "--activation-dtype", "f32", "--out", out),
    ).toMatchObject({
      status: 0,
    });
    const logits = readSafetensors(out).tensors.get("logits")?.data as Float32Array;
    expect(compare(logits, recorded.numbers("prompt0.logits")).ratio).toBeLessThanOrEqual(1e-5);
  });
});
