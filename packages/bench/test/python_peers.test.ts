import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Peer } from "@mlxts/core/testing";
import { afterAll, expect, it } from "vitest";
import { attentionPeers } from "../src/attention_peers.ts";
import { timedPeer } from "../src/index.ts";
import { mlxPeer } from "../src/mlx_peer.ts";
import { openvinoPeer } from "../src/openvino_peer.ts";
import { torchPeer } from "../src/torch_peer.ts";

const folder = mkdtempSync(join(tmpdir(), "mlxts-python-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A program in the place of Python, which answers like the peer's. */
function program(name: string, text: string): string {
  const file = join(folder, name);
  writeFileSync(file, `#!/usr/bin/env node\n${text}\n`, { mode: 0o755 });
  return file;
}

const READ = 'const lines = require("node:readline").createInterface({ input: process.stdin });';
const peer = openvinoPeer({ m: 2, rows: 64, cols: 128, weights: "u4", computes: "int8", copies: 3 });

it("asks a Python for a product, and for its time as often as it is measured", async () => {
  const python = program(
    "answers",
    `${READ}
let asked;
lines.on("line", (line) => {
  if (asked) return console.log(asked.m * 100 + asked.threads + 0.5);
  asked = JSON.parse(line);
  console.log("ready 1.2.3");
});`,
  );
  const time = await timedPeer(peer, 2, { python });
  expect(await time?.run()).toBe(202.5);
  expect(await time?.run()).toBe(202.5);
  time?.dispose();
  expect(peer.name).toBe("OpenVINO u4, int8 activations");
});

it("asks for attention, and shows its name", async () => {
  const python = program(
    "attends",
    `${READ}
let asked;
lines.on("line", (line) => {
  if (asked) return console.log(asked.keys + asked.queries);
  asked = JSON.parse(line);
  console.log("ready 1.2.3");
});`,
  );
  const sizes = { queries: 4, keys: 100, heads: 2, dim: 8, valueDim: 8, causal: false, copies: 1 };
  const [first, second, ...others] = attentionPeers(sizes, "f32");
  expect([first?.name, second?.name, others]).toEqual([
    "onnxruntime MultiHeadAttention, f32",
    "OpenVINO ScaledDotProductAttention",
    [],
  ]);
  const [only] = attentionPeers(sizes, "bf16");
  expect(only?.name).toBe("OpenVINO ScaledDotProductAttention, bf16");
  const time = await timedPeer(only as Peer, 1, { python });
  expect(await time?.run()).toBe(104);
  time?.dispose();
});

it("asks torch and FLA for their forms of an op", async () => {
  const python = program(
    "computes",
    `${READ}
let asked;
lines.on("line", (line) => {
  if (asked) return console.log(asked.kind === "state" ? asked.T / asked.Hk : asked.m + asked.cols);
  asked = JSON.parse(line);
  console.log("ready 2.11");
});`,
  );
  const linear = torchPeer({ kind: "linear", m: 2, rows: 3, cols: 40, dtype: "bf16" });
  const state = torchPeer({ kind: "state", T: 64, Hk: 2, H: 4, K: 8, V: 8, dtype: "bf16" });
  expect([linear.name, state.name]).toEqual(["torch linear, bf16", "FLA chunk_gated_delta_rule_fwd_h, bf16"]);
  for (const [peer, microseconds] of [
    [linear, 42],
    [state, 32],
  ] as const) {
    const time = await timedPeer(peer, 1, { python });
    expect(await time?.run()).toBe(microseconds);
    time?.dispose();
  }
});

it("asks MLX for experts and for attention", async () => {
  const python = program(
    "gathers",
    `${READ}
let asked;
lines.on("line", (line) => {
  if (asked) return console.log(asked.kind === "experts" ? asked.tokens * asked.chosen : asked.keys + asked.valueDim);
  asked = JSON.parse(line);
  console.log("ready 0.32");
});`,
  );
  const experts = { tokens: 3, chosen: 2, experts: 8, rows: 32, cols: 64, ordered: true } as const;
  const attention = { queries: 1, keys: 100, heads: 4, kvHeads: 1, dim: 24, valueDim: 16 } as const;
  const all = [
    mlxPeer({ kind: "experts", ...experts, dtype: "bf16" }),
    mlxPeer({ kind: "attention", ...attention, dtype: "f32" }),
  ];
  expect(all.map(({ name }) => name)).toEqual(["MLX gather_qmm, bf16", "MLX scaled_dot_product_attention, f32"]);
  for (const [i, microseconds] of [6, 116].entries()) {
    const time = await timedPeer(all[i] as Peer, 1, { python });
    expect(await time?.run()).toBe(microseconds);
    time?.dispose();
  }
});

it("is not there without a Python, or without openvino", async () => {
  expect(await timedPeer(peer, 1, { python: join(folder, "no-program") })).toBeUndefined();
  expect(await timedPeer(peer, 1, { python: program("fails", "process.exit(1);") })).toBeUndefined();
});

it("says that its process has ended", async () => {
  const python = program(
    "ends",
    `${READ}\nlines.once("line", () => { console.log("ready 1.2.3"); process.exit(0); });`,
  );
  const time = await timedPeer(peer, 1, { python });
  await expect(time?.run()).rejects.toThrow("OpenVINO's process has ended while it was measured");
});
