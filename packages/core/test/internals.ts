// What core's own objects know of each other and programs do not see, for tests.
import type { Buffer, Recording, Tensor } from "../src/api.ts";
import type { Buffer as BufferObject } from "../src/buffer.ts";
import type { Recording as RecordingObject } from "../src/encoder.ts";
import { fillBuffer } from "../src/fill.ts";
import type { Accesses, Range } from "../src/ranges.ts";
import type { Tensor as TensorObject } from "../src/tensor.ts";

export const addressOf = (buffer: Buffer): number => (buffer as BufferObject).address;

export const rangeOf = (tensor: Tensor): Range => (tensor as TensorObject).range;

export const fill = (buffer: Buffer, byte: number): void => fillBuffer(buffer as BufferObject, byte);

/** What each dispatch of a recording reads and writes, in order. */
export const accessesOf = (recording: Recording): readonly Accesses[] => (recording as RecordingObject).accesses;
