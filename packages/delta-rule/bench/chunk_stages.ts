// Sizes and inputs of the stages of the chunked form: one prefill of a layer.
import { type Device, DTYPES, type FloatDtype, type Tensor } from "@mlxts/core";
import { type Bench, type BenchCase, defineBench, Random } from "@mlxts/core/testing";

export const SIZES = { T: 512, Hk: 16, H: 32, K: 128, V: 128, BT: 64 };
const { T, Hk, H, K, V, BT } = SIZES;

/** Elements of each tensor that a stage reads or writes, and how it is drawn. */
const TENSORS = {
  q: { shape: [1, T, Hk, K], spread: K ** -0.5 },
  k: { shape: [1, T, Hk, K], spread: K ** -0.5 },
  v: { shape: [1, T, H, V], spread: 1 },
  w: { shape: [1, T, H, K], spread: K ** -0.5 },
  u: { shape: [1, T, H, V], spread: 1 },
  vNew: { shape: [1, T, H, V], spread: 1 },
  o: { shape: [1, T, H, V], spread: 1 },
  h: { shape: [1, T / BT, H, V, K], spread: 1 },
  g: { shape: [1, T, H], f32: true, low: -1 },
  G: { shape: [1, T, H], f32: true, low: -1 },
  beta: { shape: [1, T, H], f32: true, low: 0 },
  A: { shape: [1, T, H, BT], f32: true, spread: 0.05 },
  X: { shape: [1, T, H, BT], f32: true, spread: 0.05 },
  initialState: { shape: [1, H, V, K], f32: true, spread: 1 },
} satisfies Record<string, { shape: number[]; f32?: true; spread?: number; low?: number }>;
type Name = keyof typeof TENSORS;

const size = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);

/** A bench of one stage, with chunks of 64 tokens; `flops` are those of one chunk of one head. */
export function stageBench<N extends Name>(
  op: string,
  names: readonly N[],
  flops: number,
  encode: (encoder: ReturnType<Device["encoder"]>, tensors: Record<N, Tensor>) => unknown,
  dtypes: readonly FloatDtype[] = ["f32", "bf16"],
): Bench {
  const specs = names.map((name) => ({
    name,
    ...(TENSORS[name] as { shape: number[]; f32?: true; spread?: number; low?: number }),
  }));
  const stageCase = (act: FloatDtype): BenchCase => ({
    name: `T${T} Hk${Hk} H${H} K${K} V${V} ${act} ${BT}`,
    bytes: specs.reduce((sum, { shape, f32 }) => sum + size(shape) * DTYPES[f32 ? "f32" : act].bytesPerElement, 0),
    flops: flops * (T / BT) * H,
    setup(device) {
      const random = new Random(1);
      const tensors = specs.map(({ name, shape, f32, spread, low }) => {
        const n = size(shape);
        const data = low === undefined ? random.normals(n, spread) : random.uniforms(n, low, low + 1);
        return [name, device.tensor(f32 ? "f32" : act, shape, data)];
      });
      const given = Object.fromEntries(tensors) as Record<N, Tensor>;
      return { encode: (encoder) => void encode(encoder, given) };
    },
  });
  return defineBench({ op, cases: dtypes.map(stageCase) });
}
