// Takes wrapped memory away while a device works on it: `wrapped.ts SCENARIO`. Runs on any version of Node.js; a scenario
// that a version lacks prints "absent". Prints "held" when the work ended well, "refused" when the memory was not accepted.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { createContext, runInContext } from "node:vm";
import { isMainThread, MessageChannel, parentPort, Worker } from "node:worker_threads";
import { SOURCE_HOOKS } from "@mlxts/test-kit/source";
import { Device, Tensor } from "../../src/index.ts";
import { increment } from "../kernels/probe.ts";

declare const gc: () => void;

const PAGE = 16384;
const COUNT = (16 * PAGE) / 4;
const device = Device.open(undefined, { threads: 2 });
const other = Device.open(undefined, { threads: 2 });
// Large enough that the allocator returns their pages to the system at once.
const plain = () => new Uint32Array(1 << 20);

type Newer = ArrayBuffer & {
  transfer(bytes?: number): ArrayBuffer;
  transferToFixedLength(bytes?: number): ArrayBuffer;
  resize(bytes: number): void;
};
interface WasmMemory {
  readonly buffer: ArrayBufferLike;
  grow(pages: number): number;
  toFixedLengthBuffer(): ArrayBuffer;
  toResizableBuffer(): ArrayBuffer;
}
// Node.js has it, its type declarations lack it.
const { Memory } = (globalThis as unknown as { WebAssembly: { Memory: new (limits: object) => WasmMemory } })
  .WebAssembly;
const lacks = (object: object, method: string) => !(method in object);

/** Leaves 20 ms of work in flight that adds 4 to each element of what `array` shows. */
function work(on: Device, array: ArrayBufferView): { x: Tensor<"u32">; ended: PromiseLike<unknown> } {
  const x = new Tensor(on.wrap(array), "u32", [array.byteLength / 4]);
  const encoder = on.encoder();
  for (let i = 0; i < 4; i++) increment(encoder, { x, out: x }, { microseconds: 5000 });
  return { x, ended: encoder.commit() };
}

/** Frees unreferenced memory, and allocates new memory that may lie at the same addresses. */
async function churn(): Promise<void> {
  for (let i = 0; i < 4; i++) {
    gc();
    await sleep(1);
    for (let n = 0; n < 8; n++) new Uint32Array(1 << 18).fill(n);
  }
}

function tensor(on: Device): Tensor<"u32"> {
  const x = on.tensor("u32", [COUNT]);
  x.typedArray().fill(10);
  return x;
}

/** A plain array whose bytes `take` tries to transfer. */
const taking = (take: (buffer: Newer) => unknown) => async () => {
  let array: Uint32Array | undefined = plain();
  const { x, ended } = work(device, array);
  try {
    take(array.buffer as Newer);
  } catch {
    // Refused by the runtime.
  }
  assert.equal(x.disposed, array.length === 0);
  array = undefined;
  await churn();
  await ended;
  return "held";
};

const scenarios: Record<string, () => Promise<string>> = {
  async otherDevice() {
    const owner = tensor(device);
    const view = owner.typedArray();
    const { x, ended } = work(other, view);
    device.dispose();
    assert.equal(view.length, 0);
    await churn();
    await ended;
    assert.equal(x.disposed, false);
    assert.ok(x.readSync().every((value) => value === 14));
    return "held";
  },
  async sameDevice() {
    const owner = tensor(device);
    const { x, ended } = work(device, owner.typedArray());
    owner.dispose();
    assert.equal(owner.disposed, true);
    await churn();
    await ended;
    assert.ok(x.readSync().every((value) => value === 14));
    assert.equal(device.counters.liveBuffers, 2);
    x.buffer.dispose();
    await churn();
    assert.equal(device.counters.liveBuffers, 0);
    return "held";
  },
  async part() {
    const owner = tensor(device);
    const words = PAGE / 4;
    const { x, ended } = work(other, owner.typedArray().subarray(words, 3 * words));
    owner.dispose();
    await churn();
    await ended;
    assert.deepEqual(new Set(x.readSync()), new Set([14]));
    return "held";
  },
  async chain() {
    const owner = tensor(device);
    const first = new Tensor(other.wrap(owner.typedArray()), "u32", [COUNT]);
    const third = Device.open(undefined, { threads: 2 });
    const second = new Tensor(third.wrap(first.typedArray()), "u32", [COUNT]);
    const { x, ended } = work(third, second.typedArray());
    owner.dispose();
    first.buffer.dispose();
    second.buffer.dispose();
    device.dispose();
    other.dispose();
    await churn();
    await ended;
    assert.deepEqual(new Set(await x.read()), new Set([14]));
    return "held";
  },
  async lentAndTransferred() {
    const owner = tensor(device);
    const buffer = owner.typedArray().buffer as Newer;
    if (lacks(buffer, "transfer")) return "absent";
    let moved: Uint32Array | undefined = new Uint32Array(buffer.transfer());
    const { x, ended } = work(other, moved);
    owner.dispose();
    moved = undefined;
    await churn();
    await ended;
    assert.deepEqual(new Set(x.readSync()), new Set([14]));
    return "held";
  },
  async lentAgain() {
    const owner = tensor(device);
    const buffer = owner.typedArray().buffer as Newer;
    if (lacks(buffer, "transfer")) return "absent";
    const moved = new Uint32Array(buffer.transfer());
    const again = owner.typedArray();
    again[0] = 77;
    assert.equal(moved[0], 77);
    owner.dispose();
    await churn();
    assert.equal(again.length, 0);
    assert.equal(moved[0], 77);
    return "held";
  },
  transfer: taking((buffer) => buffer.transfer()),
  shrink: taking((buffer) => buffer.transfer(16)),
  grow: taking((buffer) => buffer.transfer(1 << 24)),
  empty: taking((buffer) => buffer.transfer(0)),
  fixedLength: taking((buffer) => buffer.transferToFixedLength(1 << 10)),
  clone: taking((buffer) => structuredClone(buffer, { transfer: [buffer] })),
  post: taking((buffer) => {
    const { port1, port2 } = new MessageChannel();
    port1.postMessage(buffer, [buffer]);
    port1.close();
    port2.close();
  }),
  async lost() {
    const { ended } = work(device, plain());
    await churn();
    await ended;
    return "held";
  },
  async otherRealm() {
    const realm = createContext({});
    const Resizable = "new Uint32Array(new ArrayBuffer(1 << 20, { maxByteLength: 1 << 22 }))";
    const resizable = runInContext(Resizable, realm) as Uint32Array;
    assert.throws(() => device.wrap(resizable), { code: "InvalidArgument" });
    const array = runInContext("new Uint32Array(1 << 20)", realm) as Uint32Array;
    const { ended } = work(device, array);
    try {
      structuredClone(array, { transfer: [array.buffer as ArrayBuffer] });
      (array.buffer as Newer).transfer(16);
    } catch {
      // Refused by the runtime.
    }
    await churn();
    await ended;
    return "held";
  },
  async lies() {
    const resizable = new (ArrayBuffer as unknown as new (bytes: number, options: object) => Newer)(1 << 20, {
      maxByteLength: 1 << 22,
    });
    Object.defineProperty(resizable, "resizable", { value: false });
    assert.throws(() => device.wrap(new Uint32Array(resizable)), { code: "InvalidArgument" });
    const long = new Uint32Array(4);
    Object.defineProperty(long, "byteLength", { value: 1 << 20 });
    assert.throws(() => device.wrap(long), RangeError);
    const list = new Uint32Array(4);
    Object.defineProperty(list, "buffer", { value: [1, 2, 3, 4] });
    assert.throws(() => device.wrap(list), TypeError);
    return "refused";
  },
  async wasmGrow() {
    let memory: WasmMemory | undefined = new Memory({ initial: 16 });
    const { x, ended } = work(device, new Uint32Array(memory.buffer));
    memory.grow(100);
    assert.equal(x.disposed, true);
    memory = undefined;
    await churn();
    await ended;
    return "held";
  },
  async wasmFixed() {
    const memory = new Memory({ initial: 4, maximum: 100 });
    if (lacks(memory, "toResizableBuffer")) return "absent";
    const { ended } = work(device, new Uint32Array(memory.buffer));
    const resizable = memory.toResizableBuffer() as Newer;
    assert.throws(() => device.wrap(new Uint32Array(resizable)), { code: "InvalidArgument" });
    resizable.resize(resizable.byteLength + 65536);
    memory.toFixedLengthBuffer();
    await churn();
    await ended;
    return "held";
  },
  async wasmShared() {
    let memory: WasmMemory | undefined = new Memory({ initial: 4, maximum: 100, shared: true });
    const { x, ended } = work(device, new Uint32Array(memory.buffer));
    memory.grow(10);
    memory = undefined;
    await churn();
    await ended;
    assert.deepEqual(new Set(x.readSync()), new Set([4]));
    return "held";
  },
  async growingShared() {
    const shared = new (SharedArrayBuffer as unknown as new (bytes: number, options: object) => SharedArrayBuffer)(
      1 << 16,
      { maxByteLength: 1 << 20 },
    );
    const { x, ended } = work(device, new Uint32Array(shared));
    (shared as unknown as { grow(bytes: number): void }).grow(1 << 20);
    await churn();
    await ended;
    assert.equal(x.readSync().length, 1 << 14);
    return "held";
  },
  async worker() {
    for (let round = 0; round < 3; round++) {
      const code = `import(${JSON.stringify(SOURCE_HOOKS)}).then(() => import(${JSON.stringify(import.meta.url)}))`;
      const worker = new Worker(code, { eval: true, execArgv: [] });
      await new Promise((resolve, reject) => worker.once("message", resolve).once("error", reject));
      assert.equal(await worker.terminate(), 1);
    }
    return "held";
  },
  async pool() {
    const slice = Buffer.from("sixteen bytes...");
    const { ended } = work(device, slice);
    try {
      (slice.buffer as Newer).transfer(1);
    } catch {
      // Refused by the runtime.
    }
    await churn();
    await ended;
    assert.equal(Buffer.from("the pool goes on").toString(), "the pool goes on");
    return "held";
  },
};

if (isMainThread) {
  const [name = ""] = process.argv.slice(2);
  try {
    const said = await (scenarios[name] as () => Promise<string>)();
    process.stdout.write(said);
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    if (code !== "InvalidArgument" || !message.startsWith("device.wrap: `memory` must ")) throw error;
    process.stdout.write(`refused: ${message}`);
  }
} else {
  // An environment that ends frees its arrays before its devices, unless the devices close first.
  const { ended } = work(other, tensor(device).typedArray());
  parentPort?.postMessage("working");
  await ended;
  await new Promise(() => setInterval(() => {}, 1000));
}
