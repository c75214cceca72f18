import type { Buffer } from "./buffer.ts";
import { CommandWriter } from "./command_writer.ts";
import { wholeTensor } from "./tensor.ts";

/** Fills a buffer after the work in flight, without an encoder of the program, which cannot await it. */
export function fillBuffer(buffer: Buffer, byte: number): void {
  const writer = new CommandWriter();
  const { byteLength } = buffer;
  writer.fill(wholeTensor(buffer, "u8", [byteLength], byteLength), byte);
  buffer.device.submissions.fill(writer);
}
