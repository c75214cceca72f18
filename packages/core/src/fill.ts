import type { Buffer } from "./buffer.ts";
import { CommandWriter } from "./command_writer.ts";
import { Tensor } from "./tensor.ts";

/** Fills a buffer after the work in flight, without an encoder of the program. */
export function fillBuffer(buffer: Buffer, byte: number): void {
  const writer = new CommandWriter();
  writer.fill(new Tensor(buffer, "u8", [buffer.byteLength]), byte);
  buffer.device.submissions.run(writer, {});
}
