// What references have given, for other processes of one run of tests, which run the same cases on other devices:
// MLXTS_REFERENCES names a folder that nothing but this run has written to.
import { createHash } from "node:crypto";
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { deserialize, serialize } from "node:v8";
import type { RawArray } from "../dtype.ts";
import type { Reference64 } from "./case.ts";

/** A result that took less time is sooner computed again. */
const LEAST_MS = 2;

/** The file of a result: everything that it depends on beside code that it calls, which stays the same within a run. */
function fileOf(
  folder: string,
  call: readonly unknown[],
  inputs: Readonly<Record<string, { dtype: string; shape: readonly number[]; raw: RawArray }>>,
): string {
  const names = Object.entries(inputs).map(([name, { dtype, shape }]) => [name, dtype, shape]);
  const hash = createHash("sha1").update(serialize([call, names]));
  for (const { raw } of Object.values(inputs)) hash.update(raw);
  return join(folder, hash.digest("hex"));
}

/** What `compute` gives, or gave for the same call and inputs in this run of tests. */
export function keptReference(
  call: readonly unknown[],
  inputs: Parameters<typeof fileOf>[2],
  compute: () => Record<string, Reference64>,
): Record<string, Reference64> {
  const folder = process.env.MLXTS_REFERENCES;
  if (!folder) return compute();
  const file = fileOf(folder, call, inputs);
  if (existsSync(file)) return deserialize(readFileSync(file));
  const started = performance.now();
  const found = compute();
  if (performance.now() - started < LEAST_MS) return found;
  const own = `${file}.${process.pid}`;
  writeFileSync(own, serialize(found));
  renameSync(own, file);
  return found;
}
