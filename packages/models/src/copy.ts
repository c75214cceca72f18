import type { CommandEncoder, Tensor } from "@mlxts/core";
import { slice } from "@mlxts/nn";
import type { Snapshots } from "./pass.ts";

/** Copies a tensor into one of the same size. */
export function copy(encoder: CommandEncoder, from: Tensor, to: Tensor): void {
  const flat = [1, from.size];
  slice(encoder, { x: from.reshape(flat), out: to.reshape(flat) }, { begin: 0, size: from.size });
}

/** Columns `begin` … `begin + size − 1` of x [..., D]: a view when x has one row, else a copy. */
export function columns(encoder: CommandEncoder, x: Tensor, begin: number, size: number): Tensor {
  return x.size === x.lastDim ? x.view(begin, [...x.shape.slice(0, -1), size]) : slice(encoder, { x }, { begin, size });
}

/**
 * Snapshots of the state of a convolution, which is its last inputs: copies the rows of x [T, C] before each `every`-th
 * token of each sequence into `slots` [..., rows, C]. `every` must be at least `rows`.
 */
export function copyInputSnapshots(
  encoder: CommandEncoder,
  x: Tensor,
  counts: readonly number[],
  { every }: Snapshots,
  slots: Tensor,
): void {
  const [, rows, C] = slots.shape as [number, number, number];
  let slot = 0;
  let begin = 0;
  for (const count of counts) {
    for (let at = every; at <= count; at += every)
      copy(encoder, x.view((begin + at - rows) * C, [rows, C]), slots.slice(slot, ++slot));
    begin += count;
  }
}
