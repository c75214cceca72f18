import { type BenchCase, defineBench } from "@mlxts/core/testing";
import { moePages } from "../src/index.ts";

/** What asking costs: all pages are in memory already. */
const pagesCase = (experts: number, chosen: number, bytes: number): BenchCase => ({
  name: `${chosen} of ${experts} experts of ${bytes / 1024} KiB`,
  bytes: 4 * experts,
  flops: 0,
  setup(device) {
    const stack = device.tensor("u8", [experts, bytes]);
    stack.buffer.write(new Uint8Array(stack.byteLength).fill(1));
    const flags = device.tensor(
      "u32",
      [experts],
      Uint32Array.from({ length: experts }, (_, e) => (e < chosen ? 1 : 0)),
    );
    return { encode: (encoder) => void moePages(encoder, { stack, chosen: flags }, { advice: "fetch" }) };
  },
});

export default defineBench({
  op: "moePages",
  cases: [pagesCase(512, 10, 512 << 10), pagesCase(512, 10, 32 << 10), pagesCase(128, 8, 768 << 10)],
});
