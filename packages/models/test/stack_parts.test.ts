// Which matrices of a stack go together, and what the parts give in a product.
import { Device, ELSEWHERE, Tensor } from "@mlxts/core";
import { Random } from "@mlxts/core/testing";
import { gatherMatmul } from "@mlxts/nn";
import { afterAll, describe, expect, it } from "vitest";
import { type StackPart, stackParts } from "../src/stack_parts.ts";

const device = Device.open("cpu");
afterAll(() => device.dispose());

const [ROWS, COLS] = [3, 4];
const SIZE = ROWS * COLS;
const random = new Random(7);
const files = [200, 300].map((size) => device.tensor("f32", [size], random.normals(size, 1)));
/** A matrix at an element of a file. */
const at = (file: 0 | 1, element: number) => (files[file] as Tensor).view(element, [ROWS, COLS]);
const startsOf = ({ starts }: StackPart) => [...starts.typedArray()];

describe("the parts of a stack", () => {
  it("are one for each file, from its first matrix to its last", () => {
    const parts = stackParts([at(0, 50), at(1, 7), at(0, 10), at(1, 200), at(0, 100)]);
    expect(parts.map(startsOf)).toEqual([
      [40, ELSEWHERE, 0, ELSEWHERE, 90],
      [ELSEWHERE, 0, ELSEWHERE, 193, ELSEWHERE],
    ]);
    expect(parts.map(({ weight }) => [weight.byteOffset, ...weight.shape])).toEqual([
      [40, 90 + SIZE],
      [28, 193 + SIZE],
    ]);
  });

  it("hold no more elements than one axis may have", () => {
    const matrices = [at(0, 0), at(0, 100), at(0, 88), at(0, 187), at(0, 12)];
    const starts = (most: number) => stackParts(matrices, most).map(startsOf);
    expect(starts(199)).toEqual([[0, 100, 88, 187, 12]]);
    expect(starts(198)).toEqual([
      [0, 100, 88, ELSEWHERE, 12],
      [ELSEWHERE, ELSEWHERE, ELSEWHERE, 0, ELSEWHERE],
    ]);
    expect(starts(24)).toEqual([
      [0, ELSEWHERE, ELSEWHERE, ELSEWHERE, 12],
      [ELSEWHERE, 12, 0, ELSEWHERE, ELSEWHERE],
      [ELSEWHERE, ELSEWHERE, ELSEWHERE, 0, ELSEWHERE],
    ]);
    expect(starts(SIZE).length).toBe(5);
  });

  it.each([1000, 198, 24, SIZE])("of at most %i elements give the same products as one stack", async (most) => {
    const matrices = [at(0, 0), at(1, 150), at(0, 100), at(1, 13), at(0, 187)];
    const stack = device.tensor("f32", [5, ROWS, COLS]);
    for (const [e, matrix] of matrices.entries()) stack.slice(e, e + 1).write(await matrix.readNumbers());
    const x = device.tensor("f32", [6, 1, 1, COLS], random.normals(6 * COLS, 1));
    const rhsIndices = device.tensor("u32", [6, 2], [0, 1, 4, 3, 2, 2, 1, 0, 3, 4, 2, 1]);
    const encoder = device.encoder();
    const expected = gatherMatmul(encoder, { x, weight: stack, rhsIndices });
    let out: Tensor | undefined;
    for (const part of stackParts(matrices, most))
      out = gatherMatmul(encoder, { x, ...part, rhsIndices, out }, { rows: ROWS });
    await encoder.commit();
    expect(out).toBeInstanceOf(Tensor);
    expect(await out?.read()).toEqual(await expected.read());
  });
});
