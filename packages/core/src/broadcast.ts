import { wrongKind } from "./errors.ts";
import { isArray } from "./shape.ts";

/** One axis of a batch: its size, and how many matrices further two stacks are at its next index (0: shared). */
export interface BatchAxis {
  size: number;
  left: number;
  right: number;
}

/** A copy of a shape, which may be empty, unlike a tensor's. */
function copyOf(op: string, argument: string, shape: readonly number[]): number[] {
  const copy = isArray(shape) ? Array.from(shape as readonly number[]) : undefined;
  if (!copy?.every((dim) => Number.isInteger(dim) && dim > 0))
    throw wrongKind(op, argument, "be an array of dimensions", shape);
  return copy;
}

/** The shape that two shapes broadcast to. */
export function broadcastShape(leftShape: readonly number[], rightShape: readonly number[]): number[] {
  const left = copyOf("broadcastShape", "leftShape", leftShape);
  const right = copyOf("broadcastShape", "rightShape", rightShape);
  const rank = Math.max(left.length, right.length);
  return Array.from({ length: rank }, (_, i) =>
    Math.max(left[i - rank + left.length] ?? 1, right[i - rank + right.length] ?? 1),
  );
}

/**
 * The axes over which two stacks of matrices run when they broadcast, outermost first, as few as possible.
 * Undefined where they do not broadcast.
 */
export function broadcastAxes(leftShape: readonly number[], rightShape: readonly number[]): BatchAxis[] | undefined {
  const left = copyOf("broadcastAxes", "leftShape", leftShape);
  const right = copyOf("broadcastAxes", "rightShape", rightShape);
  const axes: BatchAxis[] = [];
  let [leftStep, rightStep] = [1, 1];
  for (let i = 1; i <= Math.max(left.length, right.length); i++) {
    const [a, b] = [left[left.length - i] ?? 1, right[right.length - i] ?? 1];
    if (a !== b && a !== 1 && b !== 1) return undefined;
    const size = Math.max(a, b);
    if (size === 1) continue;
    const axis = { size, left: a === 1 ? 0 : leftStep, right: b === 1 ? 0 : rightStep };
    const inner = axes[0];
    if (inner && continues(inner.left, axis.left, inner.size) && continues(inner.right, axis.right, inner.size))
      inner.size *= size;
    else axes.unshift(axis);
    leftStep *= a;
    rightStep *= b;
  }
  return axes;
}

const continues = (inner: number, outer: number, size: number) => outer === inner * size;
