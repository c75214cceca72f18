import { readFileSync, writeFileSync } from "node:fs";
import { MetalSimError } from "./errors.ts";

/** A tensor's bytes as they lie in a safetensors file. */
export interface StoredTensor {
  dtype: string;
  shape: number[];
  bytes: Uint8Array<ArrayBuffer>;
}

const refuse = (path: string, reason: string) => new MetalSimError("Io", `${path}: ${reason}`);

type Header = Record<string, { dtype: string; shape: number[]; data_offsets: [number, number] }>;

/** Reads one tensor. */
export function readTensor(path: string, name: string): StoredTensor {
  let file: Buffer;
  try {
    file = readFileSync(path);
  } catch (error) {
    throw refuse(path, (error as Error).message);
  }
  let header: Header;
  let start: number;
  try {
    start = 8 + Number(file.readBigUInt64LE(0));
    header = JSON.parse(file.subarray(8, start).toString("utf8")) as Header;
  } catch {
    throw refuse(path, "is not a safetensors file");
  }
  const found = name === "__metadata__" ? undefined : header[name];
  if (!found) {
    const names = Object.keys(header).filter((key) => key !== "__metadata__");
    throw refuse(path, `has no tensor \`${name}\`; it has ${names.join(", ") || "none"}`);
  }
  const [begin, end] = found.data_offsets;
  if (!(begin >= 0 && begin <= end && start + end <= file.length))
    throw refuse(path, `\`${name}\` reaches past the file`);
  return { dtype: found.dtype, shape: found.shape, bytes: new Uint8Array(file.subarray(start + begin, start + end)) };
}

/** Writes tensors into a new file. */
export function writeTensors(path: string, tensors: ReadonlyMap<string, StoredTensor>): void {
  const header: Header = {};
  let at = 0;
  for (const [name, { dtype, shape, bytes }] of tensors) {
    header[name] = { dtype, shape, data_offsets: [at, at + bytes.length] };
    at += bytes.length;
  }
  const text = JSON.stringify(header);
  const json = Buffer.from(text.padEnd(Math.ceil(text.length / 8) * 8));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(json.length));
  try {
    writeFileSync(path, Buffer.concat([length, json, ...[...tensors.values()].map(({ bytes }) => bytes)]));
  } catch (error) {
    throw refuse(path, (error as Error).message);
  }
}
