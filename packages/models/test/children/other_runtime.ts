// What runtimes.test.ts runs on Deno and Bun: a norm, a product, quantizing and a mapped checkpoint.
import { Device, openCheckpoint, writeSafetensors } from "@mlxts/core";
import { matmul } from "@mlxts/nn";
import { rmsNorm } from "@mlxts/norms";
import { dequantize, quantize } from "@mlxts/quant4";

const [path = ""] = process.argv.slice(2);
const device = Device.open("cpu", { threads: 2 });
const encoder = device.encoder();
const x = device.tensor("f32", [2, 4], [3, 4, 0, 0, 1, 1, 1, 1]);
const norm = rmsNorm(encoder, { x, weight: device.tensor("f32", [4], [1, 1, 1, 1]) }, { eps: 0 });
const weight = device.tensor("f32", [3, 4], [1, 0, 0, 0, 0, 1, 0, 0, 1, 1, 1, 1]);
const product = matmul(encoder, { x, weight }, {});
const codes = Array.from({ length: 32 }, (_, i) => i % 16);
const stored = quantize(encoder, { w: device.tensor("f32", [1, 32], codes) }, { groupSize: 32, bits: 4 });
const back = dequantize(encoder, { q: { ...stored, bits: 4, groupSize: 32, mode: "affine" } });
await encoder.commit();
writeSafetensors(path, [["t", { dtype: "f32", shape: [3], data: new Float32Array([5, 6, 7]) }]]);
const checkpoint = await openCheckpoint(device, path);
const result = {
  norm: [...(await norm.readNumbers())],
  product: [...(await product.readNumbers())],
  back: [...(await back.readNumbers())],
  checkpoint: [...(await checkpoint.tensor("t").readNumbers())],
};
checkpoint.dispose();
// A device that nobody disposes is closed when the runtime ends.
Device.open("cpu").tensor("f32", [4]);
device.dispose();
process.stdout.write(`${JSON.stringify(result)}\n`);
