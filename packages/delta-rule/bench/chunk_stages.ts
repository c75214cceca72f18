// Sizes and inputs of the stages of the chunked form: one prefill of a layer.
import { torchPeer } from "@mlxts/bench/torch";
import { type Device, DTYPES, type FloatDtype, type Tensor } from "@mlxts/core";
import { type Bench, type BenchCase, defineBench, Random } from "@mlxts/core/testing";

export const SIZES = { T: 512, Hk: 16, H: 32, K: 128, V: 128, BT: 64 };
const { K, V, BT } = SIZES;
/** Tokens, heads of keys and heads of values. */
type Layer = Pick<typeof SIZES, "T" | "Hk" | "H">;

/** Those that FLA is measured on. */
const LONG_LAYERS: readonly Layer[] = [
  { T: 4096, Hk: 2, H: 4 },
  { T: 8192, Hk: 16, H: 32 },
];

/** Elements of each tensor that a stage reads or writes, and how it is drawn. */
const tensorsOf = ({ T, Hk, H }: Layer) => ({
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
});
type Name = keyof ReturnType<typeof tensorsOf>;
type Spec = { shape: number[]; f32?: boolean; spread?: number; low?: number };

const size = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);

/** A bench of one stage, with chunks of 64 tokens; `flops` are those of one chunk of one head. */
export function stageBench<N extends Name>(
  op: string,
  names: readonly N[],
  flops: number,
  encode: (encoder: ReturnType<Device["encoder"]>, tensors: Record<N, Tensor>) => unknown,
  dtypes: readonly FloatDtype[] = ["f32", "bf16"],
): Bench {
  const stageCase = (act: FloatDtype, layer: Layer = SIZES): BenchCase => {
    const { T, Hk, H } = layer;
    const tensors = tensorsOf(layer);
    const specs = names.map((name) => ({ name, ...(tensors[name] as Spec) }));
    return {
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
    };
  };
  const long = (layer: Layer): BenchCase => ({
    ...stageCase("bf16", layer),
    gpuOnly: true,
    ...(op === "chunkState" && { gpuPeers: [torchPeer({ kind: "state", ...layer, K, V, dtype: "bf16" })] }),
  });
  return defineBench({
    op,
    cases: [...dtypes.map((dtype) => stageCase(dtype)), ...(dtypes.includes("bf16") ? LONG_LAYERS.map(long) : [])],
  });
}
