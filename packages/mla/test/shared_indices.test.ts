import { survives } from "@mlxts/test-kit/flipped_indices";
import { describe, expect, it } from "vitest";
import { attacks } from "./shared_indices.ts";

const module = new URL("shared_indices.ts", import.meta.url).href;

describe("indices that a worker writes while kernels run", () => {
  it.each(Object.keys(attacks))("%s writes nothing but its outputs", async (name) => {
    expect(await survives(module, name)).toBe("");
  });
});
