/** One axis of a batch: its size, and how many matrices further x and q are at its next index (0: shared). */
export interface Axis {
  size: number;
  x: number;
  q: number;
}

/**
 * The axes over which two stacks of matrices run when they broadcast, outermost first, as few as possible.
 * Undefined where they do not broadcast.
 */
export function collapse(x: readonly number[], q: readonly number[]): Axis[] | undefined {
  const axes: Axis[] = [];
  let [xStep, qStep] = [1, 1];
  for (let i = 1; i <= Math.max(x.length, q.length); i++) {
    const [a, b] = [x[x.length - i] ?? 1, q[q.length - i] ?? 1];
    if (a !== b && a !== 1 && b !== 1) return undefined;
    const size = Math.max(a, b);
    if (size === 1) continue;
    const axis = { size, x: a === 1 ? 0 : xStep, q: b === 1 ? 0 : qStep };
    const inner = axes[0];
    if (inner && continues(inner.x, axis.x, inner.size) && continues(inner.q, axis.q, inner.size)) inner.size *= size;
    else axes.unshift(axis);
    xStep *= a;
    qStep *= b;
  }
  return axes;
}

const continues = (inner: number, outer: number, size: number) => outer === inner * size;
