// scratchBytes is exact: an arena of so many bytes is enough, and is used up; with one byte less the call is refused.
import { type Arena, Device } from "@mlxts/core";
import { afterAll, describe, expect, it } from "vitest";
import { gatedDeltaRule, type ScratchOptions, scratchBytes } from "../src/index.ts";

const device = Device.open();
afterAll(() => device.dispose());

/** More state than one kernel of a CPU takes, so that all devices need the stages. */
const WIDE = { B: 1, T: 20, Hk: 1, H: 2, K: 256, V: 520, dtype: "bf16" } as const;
const ROWS = { B: 2, T: 37, Hk: 2, H: 4, K: 248, V: 530, dtype: "f32" } as const;
const ONE = { ...ROWS, B: 1 } as const;
const SHAPES: { shape: Parameters<typeof scratchBytes>[0]; options: ScratchOptions }[] = [
  { shape: WIDE, options: {} },
  { shape: WIDE, options: { precision: "f32", chunkLength: 16 } },
  { shape: WIDE, options: { qkNorm: "max-eps", mask: true } },
  { shape: WIDE, options: { mask: true, lastTokensOnly: true } },
  { shape: WIDE, options: { sequences: 3, qkNorm: "mean-eps" } },
  { shape: ROWS, options: { channelGates: true } },
  { shape: { ...ROWS, dtype: "f16" }, options: { channelGates: true, precision: "f32", mask: true } },
  { shape: { ...ROWS, dtype: "f16" }, options: { channelGates: true, lastTokensOnly: true, chunkLength: 32 } },
  { shape: ONE, options: { channelGates: true, sequences: 5, chunkLength: 16, lastTokensOnly: true } },
];

function call(arena: Arena, { shape, options }: (typeof SHAPES)[number]): void {
  const { B, T, Hk, H, K, V, dtype } = shape;
  const { channelGates, mask, sequences, lastTokensOnly, ...rest } = options;
  const f32 = (...dims: number[]) => device.tensor("f32", dims);
  const N = sequences ?? B;
  const channels = channelGates ? [K] : [];
  gatedDeltaRule(
    device.encoder({ arena }),
    {
      q: device.tensor(dtype, [B, T, Hk, K]),
      k: device.tensor(dtype, [B, T, Hk, K]),
      v: device.tensor(dtype, [B, T, H, V]),
      g: f32(B, T, H, ...channels),
      beta: f32(B, T, H),
      o: device.tensor(dtype, [B, T, H, V]),
      ...(mask && { mask: device.tensor("u8", [B, T]) }),
      ...(sequences && { cuSeqlens: device.tensor("i32", [sequences + 1]) }),
      ...(lastTokensOnly ? { lastStates: f32(N, 2, H, V, K) } : { finalState: f32(N, H, V, K) }),
    },
    { scale: 1, path: "chunk", ...rest, ...(lastTokensOnly && { lastTokens: 2 }) },
  );
}

describe("scratchBytes is what is taken", () => {
  for (const setting of SHAPES)
    it(JSON.stringify(setting), () => {
      const bytes = scratchBytes(setting.shape, setting.options);
      const arena = device.arena(bytes);
      call(arena, setting);
      expect([arena.peakBytes, arena.used]).toEqual([bytes, 0]);
      expect(() => call(device.arena(bytes - 1), setting)).toThrow(
        `gatedDeltaRule: \`arena\` must have ${bytes} free bytes, got ${bytes - 1} — make it at least ${bytes} bytes`,
      );
    });
});
