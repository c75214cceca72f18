import { deepseekV3 } from "./deepseek_v3/family.ts";
import type { Family } from "./family.ts";
import { Fields } from "./fields.ts";
import { qwen3_5, qwen3_5Moe } from "./qwen3_5/family.ts";
import { qwen3Next } from "./qwen3_next/family.ts";

/** `model_type` → family. */
const families = new Map<string, Family>();

/** Makes a family known until the result is disposed. */
export function registerFamily(family: Family): Disposable {
  for (const type of family.modelTypes) families.set(type, family);
  return {
    [Symbol.dispose]() {
      for (const type of family.modelTypes) families.delete(type);
    },
  };
}

for (const family of [qwen3_5, qwen3_5Moe, qwen3Next, deepseekV3]) registerFamily(family);

/**
 * The family that opens a checkpoint with this `config.json`.
 * @throws RangeError `InvalidArgument` that lists the types that are known
 */
export function familyOf(op: string, json: Record<string, unknown>): Family {
  return families.get(new Fields(json, "config", op).choice("model_type", [...families.keys()])) as Family;
}
