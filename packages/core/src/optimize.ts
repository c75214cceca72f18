// The options of an encoder that optimizes, read and checked.
import type * as api from "./api.ts";
import type { Buffer } from "./buffer.ts";
import { environment } from "./env.ts";
import { disposedError, wrongKind } from "./errors.ts";
import { type Fusion, isFusion } from "./fusion.ts";
import { checkOptionNames } from "./options.ts";
import type { Optimizations } from "./plan.ts";
import { isArray } from "./shape.ts";
import { Tensor } from "./tensor.ts";

const OP = "device.encoder";

function readFlag(name: string, value: unknown): boolean {
  if (typeof value !== "boolean") throw wrongKind(OP, name, "be a boolean", value);
  return value;
}

function readRules(rules: unknown): readonly Fusion[] {
  if (!isArray(rules)) throw wrongKind(OP, "optimize.fuse", "be an array of rules", rules);
  return [...rules].map((rule) => {
    if (!isFusion(rule)) throw wrongKind(OP, "optimize.fuse", "have rules made by defineFusion", rule);
    return rule;
  });
}

/** A copy of the options; undefined for an encoder that does not optimize, as none does with `MLXTS_FUSE=0`. */
export function readOptimizations(given: boolean | api.OptimizeOptions): Optimizations | undefined {
  const optimizations = given === false ? undefined : readOptions(given);
  return environment().optimize ? optimizations : undefined;
}

function readOptions(given: true | api.OptimizeOptions): Optimizations {
  const options = given === true ? {} : given;
  if (options === null || typeof options !== "object")
    throw wrongKind(OP, "optimize", "be a boolean or an object", options);
  checkOptionNames<api.OptimizeOptions>(OP, options, { fuse: true, reorder: true, reuseScratch: true }, "optimize");
  const { fuse = [], reorder = true, reuseScratch = true } = options;
  return Object.freeze({
    fuse: readRules(fuse),
    reorder: readFlag("optimize.reorder", reorder),
    reuseScratch: readFlag("optimize.reuseScratch", reuseScratch),
  });
}

/** The buffers of tensors that a program wants to see after the recording. */
export function readKeep(op: string, keep: unknown): ReadonlySet<Buffer> {
  if (keep === undefined) return new Set();
  if (!isArray(keep)) throw wrongKind(op, "keep", "be an array of tensors", keep);
  return new Set(
    [...keep].map((tensor) => {
      if (!(tensor instanceof Tensor)) throw wrongKind(op, "keep", "be an array of tensors", tensor);
      if (tensor.disposed) throw disposedError("tensor `keep`");
      return tensor.buffer;
    }),
  );
}
