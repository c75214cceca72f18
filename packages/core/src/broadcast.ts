/** One axis of a batch: its size, and how many matrices further two stacks are at its next index (0: shared). */
export interface BatchAxis {
  size: number;
  left: number;
  right: number;
}

/** The shape that two shapes broadcast to. */
export function broadcastShape(left: readonly number[], right: readonly number[]): number[] {
  const rank = Math.max(left.length, right.length);
  return Array.from({ length: rank }, (_, i) =>
    Math.max(left[i - rank + left.length] ?? 1, right[i - rank + right.length] ?? 1),
  );
}

/**
 * The axes over which two stacks of matrices run when they broadcast, outermost first, as few as possible.
 * Undefined where they do not broadcast.
 */
export function broadcastAxes(left: readonly number[], right: readonly number[]): BatchAxis[] | undefined {
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
