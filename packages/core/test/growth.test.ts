// The time that very many dispatches, tensors and submissions take must grow with their number, not with its square.
import { describe, expect, it } from "vitest";
import { type CommandEncoder, Device, type DeviceOptions, type Submission, type Tensor } from "../src/index.ts";
import { rejected } from "./helpers.ts";
import { incrementKernel, limitKernel } from "./kernels/probe.ts";

/** How much longer four times as many take: a linear call gives 4, a quadratic one 16. */
const MOST = 9;
/** For any one call below, on a busy machine; each takes a second or two. */
const SECONDS = 60;

const WORDS = 4;

function record(encoder: CommandEncoder, x: Tensor, out: Tensor): void {
  encoder.dispatch(incrementKernel, {
    variant: "u32",
    buffers: { x, out },
    params: { perGroup: WORDS, microseconds: 0 },
    sizes: { groups: 1 },
  });
}

/** Many tensors side by side. */
function sideBySide(device: Device, n: number): Tensor[] {
  const all = device.tensor("u32", [n, WORDS]);
  return Array.from({ length: n }, (_, i) => all.slice(i, i + 1).reshape([WORDS]));
}

/** `call` prepares for `n` and gives what is to be timed: in seconds of this process's processors, the least of some. */
async function seconds(n: number, rounds: number, call: (n: number) => () => unknown): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  for (let round = 0; round < rounds; round++) {
    const timed = call(n);
    const before = process.cpuUsage();
    await timed();
    const { user, system } = process.cpuUsage(before);
    least = Math.min(least, (user + system) / 1e6);
  }
  return least;
}

async function expectLinear(n: number, call: (n: number) => () => unknown): Promise<void> {
  let [few, many] = [await seconds(n / 4, 3, call), await seconds(n, 2, call)];
  // Others use the processors' caches at the same time: a second look decides.
  if (many / few >= MOST) [few, many] = [await seconds(n / 4, 3, call), await seconds(n, 3, call)];
  expect(many).toBeLessThan(SECONDS);
  expect(many / few).toBeLessThan(MOST);
}

const TIMEOUT = 5 * SECONDS * 1000;

describe("100 000 dispatches are encoded and run in linear time", () => {
  const N = 100_000;
  const modes: [name: string, options: DeviceOptions, barriers: "auto" | "manual", profile: boolean][] = [
    ["forward", {}, "auto", false],
    ["in reverse", { order: "reverse" }, "auto", false],
    ["by one thread, in reverse", { order: "reverse", threads: 1 }, "auto", false],
    ["timed one by one", {}, "auto", true],
    ["with validated manual barriers", { validate: true }, "manual", false],
  ];
  it.each(modes)(
    "independent, %s",
    async (_, options, barriers, profile) => {
      using device = Device.open("cpu", { threads: 3, ...options });
      await expectLinear(N, (n) => {
        const x = device.tensor("u32", [WORDS]);
        const outs = sideBySide(device, n);
        return async () => {
          const encoder = device.encoder({ barriers });
          // Every other one from the end, so that the recorded ranges are not in order of address.
          for (let i = 0; i < n; i++) record(encoder, x, outs[i % 2 ? n - i : i] as Tensor);
          const { dispatches } = await encoder.commit({ profile });
          expect(dispatches?.length).toBe(profile ? n : undefined);
          const written = (outs[0] as Tensor).buffer.readSync();
          expect(new Uint32Array(written).every((value) => value === 1)).toBe(true);
          outs[0]?.buffer.dispose();
        };
      });
    },
    TIMEOUT,
  );

  it(
    "each after the one before",
    async () => {
      using device = Device.open("cpu", { threads: 3 });
      await expectLinear(N, (n) => () => {
        const x = device.tensor("u32", [WORDS]);
        const encoder = device.encoder();
        for (let i = 0; i < n; i++) record(encoder, x, x);
        const recording = encoder.finish();
        expect(recording.barriers).toBe(n - 1);
        recording.replay().waitSync();
        expect(x.readSync()[0]).toBe(n);
      });
    },
    TIMEOUT,
  );

  it(
    "half before and half after one that reads what all of them write",
    async () => {
      using device = Device.open("cpu", { threads: 3 });
      await expectLinear(N, (n) => {
        const x = device.tensor("u32", [WORDS]);
        const outs = sideBySide(device, n);
        const [all, gathered] = [device.tensor("u32", [n * WORDS]), device.tensor("u32", [n * WORDS])];
        const parts = Array.from({ length: n }, (_, i) => all.slice(WORDS * i, WORDS * (i + 1)));
        return () => {
          const encoder = device.encoder();
          for (const [i, part] of parts.entries()) record(encoder, x, i % 2 ? part : (outs[i] as Tensor));
          encoder.dispatch(incrementKernel, {
            variant: "u32",
            buffers: { x: all, out: gathered },
            params: { perGroup: n * WORDS, microseconds: 0 },
            sizes: { groups: 1 },
          });
          for (const [i, part] of parts.entries())
            record(encoder, i % 2 ? x : part, i % 2 ? (outs[i] as Tensor) : part);
          const recording = encoder.finish();
          expect(recording.barriers).toBe(2);
          recording.replay().waitSync();
          const sums = (gathered.readSync() as Uint32Array).map((value, i) => value - (Math.floor(i / WORDS) % 2));
          expect(sums.every((value) => value === 1)).toBe(true);
          expect((all.readSync() as Uint32Array).every((value) => value === 1)).toBe(true);
          for (const { buffer } of [all, gathered, outs[0] as Tensor]) buffer.dispose();
        };
      });
    },
    TIMEOUT,
  );

  it(
    "recorded, and rebound to other tensors one by one",
    async () => {
      using device = Device.open("cpu", { threads: 3 });
      await expectLinear(N / 4, (n) => {
        const x = device.tensor("u32", [WORDS]);
        const [from, to] = [sideBySide(device, n), sideBySide(device, n)];
        const encoder = device.encoder();
        for (const out of from) record(encoder, x, out);
        const recording = encoder.finish();
        return () => {
          recording
            .rebind(from.map((tensor, i) => [tensor, to[i] as Tensor]))
            .replay()
            .waitSync();
          const written = (tensors: Tensor[]) => tensors.filter((tensor) => tensor.readSync()[0] === 1).length;
          expect([written(from), written(to)]).toEqual([0, n]);
        };
      });
    },
    TIMEOUT,
  );
});

describe("linear in their number", () => {
  it(
    "16 000 submissions in flight, with a tensor made, read and written for each",
    async () => {
      using device = Device.open("cpu", { threads: 1 });
      await expectLinear(16_000, (n) => () => {
        const x = device.tensor("u32", [WORDS]);
        let last: Submission | undefined;
        // Without a turn of the event loop, the queue does not know that anything has ended.
        const tensors = Array.from({ length: n }, (_, i) => {
          const out = device.tensor("u32", [WORDS], [i, i, i, i]);
          if (out.readSync()[0] !== i) throw new Error(`tensor ${i} was not written`);
          const encoder = device.encoder();
          record(encoder, x, out);
          last = encoder.commit();
          return out;
        });
        last?.waitSync();
        expect(tensors.every((tensor) => tensor.readSync()[3] === 1)).toBe(true);
        for (const tensor of tensors) tensor.dispose();
      });
    },
    TIMEOUT,
  );

  it(
    "16 000 ranges of a failed submission, written again one by one",
    async () => {
      using device = Device.open("cpu", { threads: 1 });
      await expectLinear(16_000, (n) => {
        const bad = device.tensor("u32", [WORDS], [9, 9, 9, 9]);
        const outs = sideBySide(device, n);
        return async () => {
          const encoder = device.encoder();
          for (const out of outs)
            encoder.dispatch(limitKernel, {
              variant: "u32",
              buffers: { x: bad, out },
              params: { limit: 5 },
              sizes: { groups: WORDS },
            });
          const error = await rejected(encoder.commit());
          expect(error.message).toBe("limit: `x` must be < 5, got 9");
          outs.forEach((out, i) => {
            if (i % 2) out.write(new Uint32Array(WORDS));
            else expect(() => out.readSync()).toThrow(error);
          });
          const next = device.encoder();
          for (const out of outs) record(next, out, out);
          next.commit().waitSync();
          expect(outs[n - 1]?.readSync()[0]).toBe(1);
        };
      });
    },
    TIMEOUT,
  );
});
