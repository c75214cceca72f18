// A measured row as bars: ours, the other revision and peers, with marks for the limit and the target.
import type { Spread } from "@mlxts/bench";
import { type BenchRow, besideLimit, bestPeer, digits, moreIsBetter, timesPeer } from "./bench_report.ts";
import { rowKind, shapeMarkup } from "./bench_roofline.ts";
import { escaped } from "./markup.ts";

interface Bar {
  kind: "ours" | "base" | "peer";
  name: string;
  spread: Spread;
}

function barsOf({ ours, base, peers }: BenchRow): Bar[] {
  return [
    ...(ours ? [{ kind: "ours" as const, name: "mlxts", spread: ours }] : []),
    ...(base ? [{ kind: "base" as const, name: `base ${base.revision}`, spread: base.spread }] : []),
    ...peers.map((peer) => ({ kind: "peer" as const, name: peer.name, spread: peer })),
  ];
}

function barMarkup({ kind, name, spread }: Bar, row: BenchRow, most: number): string {
  const part = (value: number) => `${((value / most) * 100).toFixed(2)}%`;
  const mark = (value: number | undefined, which: string) =>
    value === undefined ? "" : `<line class="${which}-mark" x1="${part(value)}" x2="${part(value)}" y1="0" y2="16"/>`;
  const width = part(Math.max(spread.median, most * 0.004));
  const about = `${name}: ${digits(spread.median)} ${row.unit}`;
  return `<div class="bar-line"><span class="who">${escaped(name)}</span><svg class="track" width="100%" height="16" role="img" aria-label="${escaped(about)}"><rect class="bar ${kind}" x="0" y="3" width="${width}" height="10" rx="2"/><line class="whisker" x1="${part(spread.least)}" x2="${part(spread.most)}" y1="8" y2="8"/>${mark(row.limit?.value, "limit")}${mark(row.target?.value, "target")}</svg><span class="value"><b>${digits(spread.median)}</b> ${row.unit} <span class="spread">${digits(spread.least)} – ${digits(spread.most)}</span></span></div>`;
}

function factsOf(row: BenchRow): string[] {
  const { limit, target, base, unit, note } = row;
  const [ofLimit, ofPeer] = [besideLimit(row), timesPeer(row)];
  return [
    ...(limit && ofLimit !== null
      ? [`${ofLimit}${moreIsBetter(row) ? " of" : ""} the limit, ${digits(limit.value)} ${unit} (${limit.of})`]
      : []),
    ...(target ? [`target ${digits(target.value)} ${unit} (${target.text}) ${target.met ? "met" : "not met"}`] : []),
    ...(ofPeer !== null ? [`${digits(ofPeer)} × as fast as ${bestPeer(row)?.name}`] : []),
    ...(base ? [`${digits(base.ratio)} × the base`] : []),
    ...(note ? [note] : []),
  ];
}

/** One case on some threads. */
export function rowMarkup(row: BenchRow): string {
  const bars = barsOf(row);
  const values = [...bars.map(({ spread }) => spread.most), row.limit?.value ?? 0, row.target?.value ?? 0];
  const most = Math.max(...values, Number.MIN_VALUE) * 1.02;
  const threads = `${row.threads} ${row.threads === 1 ? "thread" : "threads"}`;
  const sign = row.ours && row.target ? shapeMarkup(rowKind(row)) : "";
  return `<article class="row${row.ours ? "" : " failed"}">
<h3>${sign}<span class="case">${escaped(row.case)}</span> <span class="threads">${threads}</span></h3>
${bars.map((bar) => barMarkup(bar, row, most)).join("\n")}
<p class="facts">${factsOf(row)
    .map((fact) => `<span>${escaped(fact)}</span>`)
    .join(" ")}</p>
</article>`;
}

/** All rows of one op. */
export function barsMarkup(name: string, number: number | undefined, rows: readonly BenchRow[]): string {
  const unit = rows[0] && moreIsBetter(rows[0]) ? "longer bars are better" : "shorter bars are better";
  const before = number === undefined ? "" : `<span class="op-number">${number}</span> `;
  return `<section class="op">
<h2>${before}${escaped(name)} <span class="hint">${unit}</span></h2>
${rows.map(rowMarkup).join("\n")}
</section>`;
}
