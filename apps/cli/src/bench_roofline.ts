// A roofline chart: how fast ops compute, over the operations that they make of each byte that they read or write.
import type { Limits } from "@mlxts/bench";
import { productRates } from "./bench_limits.ts";
import { type BenchRow, digits } from "./bench_report.ts";
import { escaped } from "./markup.ts";

/** A measured row as a point of the chart. */
export interface RooflinePoint {
  /** Of its op in the list beside the chart. */
  number: number;
  row: BenchRow;
  /** Operations for each byte. */
  intensity: number;
  /** 10⁹ operations a second. */
  rate: number;
}

/** The rows that have a time, bytes and operations. `numbers` has the number of each op. */
export function rooflinePoints(rows: readonly BenchRow[], numbers: ReadonlyMap<string, number>): RooflinePoint[] {
  return rows.flatMap((row) => {
    const { ours, work, unit, name } = row;
    if (!ours || !work || work.operations <= 0 || work.bytes <= 0 || (unit !== "µs" && unit !== "ms")) return [];
    const nanoseconds = ours.median * (unit === "µs" ? 1e3 : 1e6);
    const number = numbers.get(name) as number;
    return [{ number, row, intensity: work.operations / work.bytes, rate: work.operations / nanoseconds }];
  });
}

const WIDTH = 420;
const HEIGHT = 360;
const PLOT = { left: 50, right: WIDTH - 12, top: 12, bottom: HEIGHT - 42 };
/** Of a letter and a line of the chart's texts, with room for fonts of other systems. */
const LETTER = 6.8;
const LINE = 13;

interface Box {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

interface Line {
  x1: number;
  y1: number;
  x2: number;
  y2: number;
}

/** Whether a line goes through a box: the part of it between the box's left and right lies partly between top and bottom. */
export function crosses({ x1, y1, x2, y2 }: Line, { left, top, right, bottom }: Box): boolean {
  const [from, to] = [Math.max(left, Math.min(x1, x2)), Math.min(right, Math.max(x1, x2))];
  if (from > to) return false;
  const at = (x: number) => (x1 === x2 ? y1 : y1 + ((x - x1) / (x2 - x1)) * (y2 - y1));
  const [a, b] = [at(from), at(to)];
  return Math.max(a, b) > top && Math.min(a, b) < bottom;
}

/** Where texts and points stand already, and where roofs are. */
class Places {
  private readonly taken: Box[] = [];

  /** Takes the boxes if nothing is there, they are inside the plot and none of the lines goes through them. */
  take(boxes: readonly Box[], lines: readonly Line[] = []): boolean {
    if (boxes.some((box) => lines.some((line) => crosses(line, box)))) return false;
    const inside = ({ left, top, right, bottom }: Box) =>
      left >= PLOT.left && right <= PLOT.right && top >= PLOT.top && bottom <= PLOT.bottom;
    const meets = (a: Box, b: Box) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    if (!boxes.every((box) => inside(box) && !this.taken.some((other) => meets(box, other)))) return false;
    this.taken.push(...boxes);
    return true;
  }

  add(box: Box): void {
    this.taken.push(box);
  }
}

const around = (x: number, y: number, width: number, height: number): Box => ({
  left: x - width / 2,
  right: x + width / 2,
  top: y - height / 2,
  bottom: y + height / 2,
});

/** Powers of ten that the values are between, as exponents. */
function decades(values: readonly number[]): [number, number] {
  const least = Math.floor(Math.log10(Math.min(...values)));
  const most = Math.ceil(Math.log10(Math.max(...values)));
  return [least, Math.max(most, least + 1)];
}

/** From a value to a place on a logarithmic axis. */
const axis =
  ([least, most]: readonly [number, number], from: number, to: number) =>
  (value: number) =>
    from + ((Math.log10(value) - least) / (most - least)) * (to - from);

interface Scale {
  x(value: number): number;
  y(value: number): number;
  xs: readonly [number, number];
  ys: readonly [number, number];
}

const fastestRate = (limits: Limits) => Math.max(...productRates(limits).map(({ rate }) => rate));

function scaleFor(limits: Limits, points: readonly RooflinePoint[]): Scale {
  const most = fastestRate(limits);
  const xs = decades([0.1, (2 * most) / limits.memoryGBs, ...points.map(({ intensity }) => intensity)]);
  const [low] = decades([10, most, ...points.map(({ rate }) => rate)]);
  const high = Math.log10(2 * Math.max(most, ...points.map(({ rate }) => rate)));
  const ys = [low, high] as const;
  return { xs, ys, x: axis(xs, PLOT.left, PLOT.right), y: axis(ys, PLOT.bottom, PLOT.top) };
}

const at = (value: number) => value.toFixed(1);

function gridMarkup({ x, y, xs, ys }: Scale): string {
  const parts: string[] = [];
  const middle = (PLOT.left + PLOT.right) / 2;
  for (let power = xs[0]; power <= xs[1]; power++) {
    const place = at(x(10 ** power));
    const anchor = power === xs[1] ? "end" : "middle";
    parts.push(`<line class="grid" x1="${place}" x2="${place}" y1="${PLOT.top}" y2="${PLOT.bottom}"/>`);
    parts.push(`<text class="tick" x="${place}" y="${PLOT.bottom + 15}" text-anchor="${anchor}">${10 ** power}</text>`);
  }
  for (let power = ys[0]; power <= ys[1]; power++) {
    const place = y(10 ** power);
    parts.push(`<line class="grid" x1="${PLOT.left}" x2="${PLOT.right}" y1="${at(place)}" y2="${at(place)}"/>`);
    parts.push(`<text class="tick" x="${PLOT.left - 6}" y="${at(place + 4)}" text-anchor="end">${10 ** power}</text>`);
  }
  parts.push(`<text class="axis" x="${middle}" y="${HEIGHT - 8}" text-anchor="middle">operations per byte</text>`);
  const half = (PLOT.top + PLOT.bottom) / 2;
  const turned = `transform="translate(11 ${half}) rotate(-90)" text-anchor="middle"`;
  parts.push(`<text class="axis" ${turned}>10⁹ operations a second</text>`);
  return parts.join("\n");
}

/** A speed of products or of a memory: its line, and a name for it. */
interface Roof {
  kind: string;
  name: string;
  line: Line;
}

/** Speeds of products: level lines; equal ones have one name. */
function productRoofs(limits: Limits, { x, y, xs }: Scale): Roof[] {
  const kinds = productRates(limits)
    .map(({ name, rate }) => ({ name: name.replace(" products", ""), rate }))
    .sort((a, b) => b.rate - a.rate);
  return kinds.map(({ name, rate }) => {
    const height = y(rate);
    const from = x(Math.max(10 ** xs[0], rate / limits.coreCacheGBs));
    const alike = kinds.filter((kind) => Math.abs(y(kind.rate) - height) < LINE + 1);
    const isFirst = alike[0]?.name === name;
    return {
      kind: "products",
      name: isFirst ? `${alike.map((kind) => kind.name).join(", ")} ${digits(rate)}` : "",
      line: { x1: from, y1: height, x2: PLOT.right, y2: height },
    };
  });
}

/** Speeds of memories: slopes up to the fastest products. */
function memoryRoofs(limits: Limits, { x, y, xs, ys }: Scale): Roof[] {
  const most = fastestRate(limits);
  const slopes = [
    { name: "core caches", kind: "core", speed: limits.coreCacheGBs },
    { name: "shared cache", kind: "shared", speed: limits.sharedCacheGBs },
    { name: "memory", kind: "memory", speed: limits.memoryGBs },
  ];
  return slopes.map(({ name, kind, speed }) => {
    const from = Math.max(10 ** xs[0], 10 ** ys[0] / speed);
    const line = { x1: x(from), y1: y(from * speed), x2: x(most / speed), y2: y(most) };
    return { kind, name: `${name} ${digits(speed)} GB/s`, line };
  });
}

/** All roofs, each with its name beside its line where there is room and no other line goes through the name. */
function roofsMarkup(roofs: readonly Roof[], places: Places): string {
  return roofs
    .map(({ kind, name, line }) => {
      const { x1, y1, x2, y2 } = line;
      const others = roofs.filter((each) => each.line !== line).map((each) => each.line);
      const markup = `<line class="roof ${kind}" x1="${at(x1)}" y1="${at(y1)}" x2="${at(x2)}" y2="${at(y2)}"/>`;
      const nameMarkup = kind === "products" ? levelName : slopeName;
      return markup + (name === "" ? "" : nameMarkup(name, line, others, places));
    })
    .join("\n");
}

/** The name of a level line above it, as far to the right as there is room. */
function levelName(text: string, { x1, x2, y1 }: Line, others: readonly Line[], places: Places): string {
  const width = text.length * LETTER;
  for (let right = x2 - 4; right - width >= x1; right -= 6)
    if (places.take([around(right - width / 2, y1 - 7, width, LINE)], others))
      return `<text class="roof-name" x="${at(right)}" y="${at(y1 - 4)}" text-anchor="end">${text}</text>`;
  return "";
}

/** How far the middle of a name is from its line. */
const SLOPE_NAME = 9;

/** The name of a slope along it, as far down as there is room. */
function slopeName(text: string, line: Line, others: readonly Line[], places: Places): string {
  const [dx, dy] = [line.x2 - line.x1, line.y2 - line.y1];
  const length = Math.hypot(dx, dy);
  const [ux, uy] = [dx / length, dy / length];
  const half = (text.length * LETTER) / 2;
  for (let middle = half + 4; middle <= length - half - 4; middle += 6) {
    // The middle of the name, above the line.
    const x = line.x1 + ux * middle + uy * SLOPE_NAME;
    const y = line.y1 + uy * middle - ux * SLOPE_NAME;
    const steps = Math.ceil((2 * half) / 6);
    const boxes = Array.from({ length: steps + 1 }, (_, i) => {
      const along = -half + (i / steps) * 2 * half;
      return around(x + ux * along, y + uy * along, LINE, LINE);
    });
    if (!places.take(boxes, others)) continue;
    const turn = (Math.atan2(dy, dx) * 180) / Math.PI;
    const place = `translate(${at(x - uy * 4)} ${at(y + ux * 4)}) rotate(${at(turn)})`;
    return `<text class="roof-name" transform="${place}" text-anchor="middle">${escaped(text)}</text>`;
  }
  return "";
}

const SHAPES = {
  met: "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
  missed: "M0 -5.5L5.5 0L0 5.5L-5.5 0z",
  plain: "M-4 -4h8v8h-8z",
};

/** What is said of a row's target: its color and shape. */
export const rowKind = ({ target }: BenchRow): keyof typeof SHAPES =>
  target === null ? "plain" : target.met ? "met" : "missed";

/** The shape alone, as a sign in the text around the chart. */
export const shapeMarkup = (kind: keyof typeof SHAPES) =>
  `<svg class="sign" width="12" height="12" viewBox="-6 -6 12 12" aria-hidden="true"><path class="${kind}" d="${SHAPES[kind]}"/></svg>`;

function pointMarkup(point: RooflinePoint, { x, y }: Scale): string {
  const { row, rate, intensity } = point;
  const kind = rowKind(row);
  const title = `${row.name}, ${row.case}: ${digits(rate)} × 10⁹ operations a second, ${digits(intensity)} a byte`;
  const place = `translate(${at(x(intensity))} ${at(y(rate))})`;
  return `<path class="point ${kind}" transform="${place}" d="${SHAPES[kind]}"><title>${escaped(title)}</title></path>`;
}

/** The number of a point's op beside it, where there is room. */
function numberMarkup({ number, intensity, rate }: RooflinePoint, { x, y }: Scale, places: Places): string {
  const [px, py] = [x(intensity), y(rate)];
  const text = String(number);
  const width = text.length * LETTER + 2;
  for (const distance of [6, 12])
    for (const [dx, dy] of [
      [1, 0],
      [-1, 0],
      [0, -1],
      [0, 1],
      [1, -1],
      [-1, -1],
      [1, 1],
      [-1, 1],
    ] as const) {
      const [cx, cy] = [px + dx * (distance + width / 2), py + dy * (distance + LINE / 2)];
      if (places.take([around(cx, cy, width, LINE - 1)]))
        return `<text class="number" x="${at(cx)}" y="${at(cy + 3.5)}" text-anchor="middle">${text}</text>`;
    }
  return "";
}

/** The chart of one number of threads. */
export function rooflineMarkup(limits: Limits, points: readonly RooflinePoint[]): string {
  const scale = scaleFor(limits, points);
  const places = new Places();
  for (const { intensity, rate } of points) places.add(around(scale.x(intensity), scale.y(rate), 9, 9));
  const roofs = roofsMarkup([...productRoofs(limits, scale), ...memoryRoofs(limits, scale)], places);
  const name = `Roofline of ${limits.threads} ${limits.threads === 1 ? "thread" : "threads"}: ${points.length} points`;
  return `<svg class="roofline" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${name}">
${gridMarkup(scale)}
${roofs}
${points.map((point) => pointMarkup(point, scale)).join("\n")}
${points.map((point) => numberMarkup(point, scale, places)).join("\n")}
</svg>`;
}
