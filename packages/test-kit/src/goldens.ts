// Golden vectors: what the original code of a model computed, in safetensors files under fixtures/.
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { decodeNumbers, type HostTensor, readSafetensors } from "@mlxts/core";
import { decompress } from "../../../fixtures/compressed.mjs";

/** The path of a file or folder under fixtures/. */
export const fixture = (path: string): string => fileURLToPath(new URL(`../../../fixtures/${path}`, import.meta.url));

/** The path of a checkpoint whose weights are compressed under fixtures/, unpacked. */
export function unpackedCheckpoint(name: string): string {
  execFileSync(process.execPath, [fixture("unpack_checkpoints.mjs"), name]);
  return fileURLToPath(new URL(`../../../build/checkpoints/${name}`, import.meta.url));
}

export interface Goldens {
  readonly names: readonly string[];
  has(name: string): boolean;
  /** A tensor as it is stored; a missing one is an error. */
  tensor(name: string): HostTensor;
  /** The numbers of a tensor. */
  numbers(name: string): Float64Array;
}

/** The tensors of a file, which may lie compressed beside others. */
function readTensors(path: string): Map<string, HostTensor> {
  const plain = fixture(path);
  if (existsSync(plain)) return readSafetensors(plain).tensors;
  const folder = mkdtempSync(join(tmpdir(), "goldens-"));
  try {
    const file = join(folder, "goldens.safetensors");
    writeFileSync(file, decompress(readFileSync(`${plain}.br`), 4));
    return readSafetensors(file).tensors;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Reads a file of golden vectors; `path` is under fixtures/. */
export function goldens(path: string): Goldens {
  const tensors = readTensors(path);
  const tensor = (name: string): HostTensor => {
    const found = tensors.get(name);
    if (!found) throw new Error(`${path} has no tensor ${name}`);
    return found;
  };
  const numbers = (name: string) => {
    const { dtype, data } = tensor(name);
    return decodeNumbers(dtype, data);
  };
  return { names: [...tensors.keys()], has: (name) => tensors.has(name), tensor, numbers };
}
