import { closeSync, openSync, writeSync } from "node:fs";

/** Types of tensors of a GGUF file: the number that stands for each, and the bytes of a block of elements. */
const TENSOR_TYPES = {
  f32: { code: 0, elements: 1, bytes: 4 },
  // A scale in f16 and 32 codes of 4 bits.
  q4_0: { code: 2, elements: 32, bytes: 18 },
} as const;

export interface GgufTensor {
  readonly name: string;
  readonly type: keyof typeof TENSOR_TYPES;
  /** Rows before columns. The file has them in reverse. */
  readonly shape: readonly number[];
}

/** A value with the type that readers expect of its key. */
export type GgufValue =
  | { readonly u32: number }
  | { readonly f32: number }
  | { readonly text: string }
  | { readonly i32s: readonly number[] };

const VERSION = 3;
/** Where data begins, and each tensor in it: at multiples of this. */
const ALIGNMENT = 32;
const aligned = (bytes: number) => Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;

/** Numbers that stand for the types of values. */
const U32 = 4;
const I32 = 5;
const F32 = 6;
const STRING = 8;
const ARRAY = 9;

const u32 = (value: number) => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
};
const i32 = (value: number) => {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32LE(value);
  return bytes;
};
const u64 = (value: number) => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
};
const f32 = (value: number) => {
  const bytes = Buffer.alloc(4);
  bytes.writeFloatLE(value);
  return bytes;
};
const string = (text: string) => {
  const bytes = Buffer.from(text);
  return Buffer.concat([u64(bytes.length), bytes]);
};

function valueBytes(value: GgufValue): Buffer {
  if ("u32" in value) return Buffer.concat([u32(U32), u32(value.u32)]);
  if ("f32" in value) return Buffer.concat([u32(F32), f32(value.f32)]);
  if ("text" in value) return Buffer.concat([u32(STRING), string(value.text)]);
  return Buffer.concat([u32(ARRAY), u32(I32), u64(value.i32s.length), ...value.i32s.map(i32)]);
}

/** Bytes of a tensor's elements. */
export function ggufBytes({ type, shape }: GgufTensor): number {
  const { elements, bytes } = TENSOR_TYPES[type];
  return (shape.reduce((a, b) => a * b, 1) / elements) * bytes;
}

/** The start of a file up to the data of the first tensor: values by key, then what is known of each tensor. */
export function ggufHeader(values: Readonly<Record<string, GgufValue>>, tensors: readonly GgufTensor[]): Buffer {
  const entries = Object.entries(values);
  const parts: Buffer[] = [Buffer.from("GGUF"), u32(VERSION), u64(tensors.length), u64(entries.length)];
  for (const [key, value] of entries) parts.push(string(key), valueBytes(value));
  let offset = 0;
  for (const tensor of tensors) {
    const { name, type, shape } = tensor;
    parts.push(string(name), u32(shape.length), ...[...shape].reverse().map(u64));
    parts.push(u32(TENSOR_TYPES[type].code), u64(offset));
    offset += aligned(ggufBytes(tensor));
  }
  const header = Buffer.concat(parts);
  return Buffer.concat([header, Buffer.alloc(aligned(header.length) - header.length)]);
}

/** Bytes of all tensors, with what lies between them. */
export const ggufDataBytes = (tensors: readonly GgufTensor[]): number =>
  tensors.reduce((sum, tensor) => sum + aligned(ggufBytes(tensor)), 0);

/**
 * Writes a GGUF file. `piecesOf` gives the elements of a tensor as they lie in the file, piece by piece; a piece is written
 * before the next one is asked for.
 */
export async function writeGguf<T extends GgufTensor>(
  path: string,
  values: Readonly<Record<string, GgufValue>>,
  tensors: readonly T[],
  piecesOf: (tensor: T) => Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
): Promise<void> {
  const file = openSync(path, "wx");
  const write = (bytes: Uint8Array) => {
    for (let done = 0; done < bytes.length; ) done += writeSync(file, bytes, done);
  };
  try {
    write(ggufHeader(values, tensors));
    for (const tensor of tensors) {
      let written = 0;
      for await (const piece of piecesOf(tensor)) {
        write(piece);
        written += piece.length;
      }
      const expected = ggufBytes(tensor);
      if (written !== expected) throw new Error(`${tensor.name} has ${expected} bytes, but ${written} were written`);
      write(new Uint8Array(aligned(written) - written));
    }
  } finally {
    closeSync(file);
  }
}
