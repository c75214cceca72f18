import { barsMarkup } from "./bench_bars.ts";
import {
  type BenchReport,
  type BenchRow,
  bestPeer,
  limitsTable,
  rowsTable,
  timesPeer,
  verifiedText,
} from "./bench_report.ts";
import { rooflineMarkup, rooflinePoints, shapeMarkup } from "./bench_roofline.ts";
import { STYLE } from "./bench_style.ts";
import { escaped, tableMarkup } from "./markup.ts";

function groupedByName(rows: readonly BenchRow[]): Map<string, BenchRow[]> {
  const groups = new Map<string, BenchRow[]>();
  for (const row of rows) groups.set(row.name, [...(groups.get(row.name) ?? []), row]);
  return groups;
}

function tilesMarkup(rows: readonly BenchRow[]): string {
  const count = (test: (row: BenchRow) => unknown) => rows.filter(test).length;
  const measured = count(({ ours }) => ours);
  const targets = count(({ ours, target }) => ours && target);
  const beside = count((row) => row.ours && bestPeer(row));
  const tiles: [string, string][] = [[String(measured), measured === 1 ? "row measured" : "rows measured"]];
  if (targets > 0) tiles.push([`${count(({ ours, target }) => ours && target?.met)} of ${targets}`, "targets met"]);
  if (beside > 0)
    tiles.push([`${count((row) => (timesPeer(row) ?? 0) >= 1)} of ${beside}`, "at least as fast as every peer"]);
  if (measured < rows.length) tiles.push([String(rows.length - measured), "not measured"]);
  return `<div class="tiles">${tiles
    .map(([figure, text]) => `<div class="tile"><b>${figure}</b><span>${text}</span></div>`)
    .join("")}</div>`;
}

function rooflinesMarkup({ limits, rows }: BenchReport, numbers: ReadonlyMap<string, number>): string {
  if (limits.length === 0) return "";
  const shown = rooflinePoints(rows, numbers);
  const figures = limits.map((each) => {
    const points = shown.filter(({ row }) => row.threads === each.threads);
    const threads = `${each.threads} ${each.threads === 1 ? "thread" : "threads"}`;
    return `<figure><figcaption>${threads}</figcaption>${rooflineMarkup(each, points)}</figure>`;
  });
  const used = [...numbers].filter(([name]) => shown.some(({ row }) => row.name === name));
  const kinds = [
    ...(shown.some(({ row }) => row.target?.met) ? [`<li>${shapeMarkup("met")}target met</li>`] : []),
    ...(shown.some(({ row }) => row.target && !row.target.met)
      ? [`<li>${shapeMarkup("missed")}target not met</li>`]
      : []),
    ...(shown.some(({ row }) => !row.target) ? [`<li>${shapeMarkup("plain")}no target</li>`] : []),
  ];
  const roofs = ["core caches", "shared cache", "memory", "products"].map(
    (name) => `<li><span class="key ${name.split(" ")[0]}"></span>${name}</li>`,
  );
  const ops = used.map(([name, number]) => `<li><b>${number}</b> ${escaped(name)}</li>`);
  return `<section class="card">
<h2>What the machine allows</h2>
<p class="about">Lines are what this machine's memories and products reached in the same run. A point under a line leaves the rest unused; points of ops whose tensors are in a cache may stand above the line of the memory.</p>
<div class="charts">${figures.join("\n")}</div>
<ul class="legend">${[...roofs, ...kinds].join("")}</ul>
${ops.length > 0 ? `<ul class="legend">${ops.join("")}</ul>` : ""}
</section>`;
}

const KEYS = `<ul class="legend">
<li><span class="key ours"></span>mlxts, with its spread</li><li><span class="key peer"></span>another library</li>
<li><span class="key base"></span>the other revision</li><li><span class="key limit"></span>limit of the machine</li>
<li><span class="key target"></span>target</li></ul>`;

function aboutMarkup(report: BenchReport): string {
  const { system, device, versions, date, settings = {} } = report;
  const facts = [
    `${system.cpu}; ${system.os}, ${system.platform} ${system.arch}; Node.js ${system.node}`,
    `${device.kind} ${device.name}, kernels ${device.level}; ${date}`,
    Object.entries(versions)
      .map(([name, version]) => `${name} ${version}`)
      .join(", "),
    ...verifiedText(report),
    ...Object.entries(settings).map(([title, text]) => `${title}: ${text}`),
  ];
  return facts.map((fact) => `<p class="about">${escaped(fact)}</p>`).join("\n");
}

/** A report as one page that needs nothing else: no script, no other file, no network. */
export function reportHtml(report: BenchReport): string {
  const groups = groupedByName(report.rows);
  const numbers = new Map([...groups.keys()].map((name, i) => [name, i + 1]));
  const bars = [...groups].map(([name, rows]) => barsMarkup(name, numbers.get(name), rows));
  const all = rowsTable(report);
  const limits = limitsTable(report);
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>${escaped(report.tool)}, ${escaped(report.system.cpu)}</title>
<style>${STYLE}</style>
</head>
<body>
<main>
<h1>${escaped(report.tool)}</h1>
${aboutMarkup(report)}
${report.rows.length > 0 ? tilesMarkup(report.rows) : ""}
${rooflinesMarkup(report, numbers)}
${report.limits.length > 0 ? `<section class="card"><h2>Measured limits</h2>${tableMarkup(limits.head, limits.lines)}</section>` : ""}
${bars.length > 0 ? `<section class="card"><h2>Measured rows</h2><p class="about">Medians; the thin line of a bar goes from the least to the most that was measured. Each row has its own scale.</p>${KEYS}</section>` : ""}
${bars.join("\n")}
${bars.length > 0 ? `<details class="card"><summary>All figures in one table</summary>${tableMarkup(all.head, all.lines)}</details>` : ""}
</main>
</body>
</html>
`;
}
