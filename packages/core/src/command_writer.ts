import type { Buffer } from "./buffer.ts";
import { type AnyKernel, type Dispatch, namedParams } from "./dispatch.ts";
import type { Scalar } from "./kernel.ts";
import { Footprint } from "./memory_uses.ts";
import type { NativeMemory } from "./native.ts";
import type { Accesses } from "./ranges.ts";
import type { Tensor } from "./tensor.ts";

const COMMAND = { dispatch: 1, barrier: 2, fill: 3 } as const;
const ABSENT = 0xffffffff;

const floats = new Float32Array(1);
const floatBits = new Uint32Array(floats.buffer);
const NO_WORDS = new Uint32Array(0);

/** A list of 32-bit words that grows. */
class Words {
  array = NO_WORDS;
  count = 0;

  push(word: number): void {
    if (this.count === this.array.length) {
      const grown = new Uint32Array(Math.max(256, this.array.length * 2));
      grown.set(this.array);
      this.array = grown;
    }
    this.array[this.count++] = word;
  }
  push64(value: number): void {
    this.push(value >>> 0);
    this.push(Math.floor(value / 2 ** 32));
  }
  pushFloat(value: number): void {
    floats[0] = value;
    this.push(floatBits[0] as number);
  }
}

/** What `MLXTS_DEBUG` shows of a dispatch: its threadgroups; with `long` its tensors and parameters too. */
export function dispatchNote({ kernel, buffers, params, launch }: Dispatch, long: boolean): string {
  const groups = `${launch.threadgroups.join("×")} threadgroups`;
  if (!long) return groups;
  const tensors = kernel.bufferNames.map((name) => {
    const tensor = buffers[name];
    return tensor ? `${name} ${tensor.dtype}[${tensor.shape.join(", ")}]` : `${name} -`;
  });
  const values = Object.entries(namedParams(kernel, launch.world, params));
  return [groups, ...tensors, ...values.map(([name, value]) => `${name} ${value}`)].join(", ");
}

/** Writes commands as words; packages/core/native/command_list.h describes these. */
export class CommandWriter {
  readonly words = new Words();
  readonly memories: NativeMemory[] = [];
  readonly labels: string[] = [];
  readonly accesses: Accesses[] = [];
  readonly footprint = new Footprint(this.accesses);
  private readonly indices = new Map<Buffer, number>();

  private indexOf(buffer: Buffer): number {
    let index = this.indices.get(buffer);
    if (index === undefined) {
      index = this.memories.push(buffer.retain()) - 1;
      this.indices.set(buffer, index);
    }
    return index;
  }

  /** Releases the buffers: native code holds their memory from here on, or the commands are abandoned. */
  releaseBuffers(): void {
    for (const buffer of this.indices.keys()) buffer.release();
  }

  private binding(tensor: Tensor | undefined): void {
    this.words.push(tensor ? this.indexOf(tensor.buffer) : ABSENT);
    this.words.push64(tensor ? tensor.byteOffset : 0);
    this.words.push64(tensor ? tensor.byteLength : 0);
  }

  barrier(): void {
    this.words.push(COMMAND.barrier);
  }

  fill(tensor: Tensor, byte: number): void {
    this.words.push(COMMAND.fill);
    this.words.push(this.labels.push("fill") - 1);
    this.words.push(byte);
    this.binding(tensor);
    this.accesses.push({ label: "fill", reads: [], writes: [tensor.range] });
  }

  dispatch(pipeline: number, { kernel, buffers, params, launch }: Dispatch, accesses: Accesses): void {
    const { words } = this;
    words.push(COMMAND.dispatch);
    words.push(pipeline);
    words.push(this.labels.push(accesses.label) - 1);
    for (let axis = 0; axis < 3; axis++) words.push(launch.threadgroups[axis] as number);
    for (let axis = 0; axis < 3; axis++) words.push(launch.threadsPerThreadgroup[axis] as number);
    words.push(launch.scratch.bytes);
    words.push(launch.scratch.guards.length);
    words.push(kernel.faultTexts.length > 0 ? 1 : 0);
    words.push(kernel.writtenSlots);
    words.push(kernel.earlySlots);
    words.push(kernel.bufferNames.length);
    const count = words.count;
    words.push(0);
    for (const end of launch.scratch.guards) words.push(end);
    for (let i = 0; i < kernel.bufferNames.length; i++) this.binding(buffers[kernel.bufferNames[i] as string]);
    const first = words.count;
    this.params(kernel, buffers, params, launch);
    words.array[count] = words.count - first;
    this.accesses.push(accesses);
  }

  /** The fields of the params struct, which params_header.ts writes. */
  private params(
    kernel: AnyKernel,
    buffers: Dispatch["buffers"],
    params: Dispatch["params"],
    { world, scratch }: Dispatch["launch"],
  ): void {
    const { words } = this;
    const first = words.count;
    const { paramNames, launchParamNames } = kernel;
    this.scalars(kernel.params, paramNames, params, 0);
    if (kernel.optional)
      words.push(kernel.bufferNames.reduce((mask, name, i) => mask + (buffers[name] ? 2 ** i : 0), 0));
    this.scalars(kernel.launchParams[world], launchParamNames[world], params, paramNames.length);
    for (const offset of scratch.offsets) words.push(offset);
    if (words.count === first) words.push(0);
  }

  /** The parameters of these names, whose values begin at `first`. */
  private scalars(
    declared: Readonly<Record<string, Scalar>>,
    names: readonly string[],
    values: Dispatch["params"],
    first: number,
  ): void {
    for (let i = 0; i < names.length; i++) {
      const value = values[first + i] as number;
      if (declared[names[i] as string] === "f32") this.words.pushFloat(value);
      else this.words.push(value);
    }
  }
}
