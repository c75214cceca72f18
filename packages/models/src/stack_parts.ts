// Matrices of one size that lie anywhere: in one file or in several, in any order, with other tensors between them.
import { ELSEWHERE, Tensor } from "@mlxts/core";

/** A part of a stack of matrices, as `gatherMatmul` and `moePages` take it. */
export interface StackPart {
  /** One-dimensional: all that lies between the part's first and last matrix. */
  weight: Tensor;
  /** u32 [matrices]: the element of `weight` that each matrix begins at, `ELSEWHERE` for those of other parts. */
  starts: Tensor;
}

/** The most elements that one axis of a tensor has. */
const MAX_AXIS = 0x7fffffff;

interface Placed {
  matrix: Tensor;
  index: number;
}

/** The matrices by the parts that they go to: of one buffer, no farther apart than `most` elements. */
function grouped(matrices: readonly Tensor[], most: number): Placed[][] {
  const groups: Placed[][] = [];
  for (const buffer of new Set(matrices.map((matrix) => matrix.buffer))) {
    const placed = matrices
      .map((matrix, index): Placed => ({ matrix, index }))
      .filter(({ matrix }) => matrix.buffer === buffer)
      .sort((a, b) => a.matrix.byteOffset - b.matrix.byteOffset);
    let group: Placed[] | undefined;
    for (const one of placed) {
      const { byteOffset, byteLength, size } = one.matrix;
      const begin = group?.[0]?.matrix.byteOffset;
      if (!group || begin === undefined || byteOffset + byteLength - begin > (most / size) * byteLength) {
        group = [];
        groups.push(group);
      }
      group.push(one);
    }
  }
  return groups;
}

/**
 * The parts of a stack of matrices, which have one dtype and one size: one for each file, and more where matrices are
 * farther apart than a tensor reaches. The starts are the caller's to dispose.
 */
export function stackParts(matrices: readonly Tensor[], most = MAX_AXIS): StackPart[] {
  return grouped(matrices, most).map((group) => {
    const [{ buffer, byteOffset: begin, dtype, byteLength, size, device }, last] = [group[0], group.at(-1)].map(
      (placed) => (placed as Placed).matrix,
    ) as [Tensor, Tensor];
    const unit = byteLength / size;
    const span = (last.byteOffset - begin) / unit + size;
    const starts = new Uint32Array(matrices.length).fill(ELSEWHERE);
    for (const { matrix, index } of group) starts[index] = (matrix.byteOffset - begin) / unit;
    return {
      weight: new Tensor(buffer, dtype, [span], { byteOffset: begin }),
      starts: device.tensor("u32", [matrices.length], starts),
    };
  });
}
