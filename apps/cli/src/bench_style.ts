/** The style of a report's page: light or dark, as the reader's system is. */
export const STYLE = `
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --line: #dfe3e8; --text: #1b2430; --soft: #566170;
  --ours: #2563eb; --base: #7a8594; --peer: #b9c1cc; --whisker: #1b2430;
  --met: #15803d; --missed: #c2410c; --plain: #2563eb; --limit: #b91c1c; --target: #15803d;
  --core: #7c3aed; --shared: #0e7490; --memory: #b91c1c; --products: #566170;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #10141a; --card: #181e26; --line: #2d3642; --text: #e6eaf0; --soft: #a3aebd;
    --ours: #5b93ff; --base: #8793a3; --peer: #4a5564; --whisker: #e6eaf0;
    --met: #4ade80; --missed: #fb923c; --plain: #7aa7ff; --limit: #f87171; --target: #4ade80;
    --core: #b794ff; --shared: #4cc9e0; --memory: #f87171; --products: #a3aebd;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, "Segoe UI", "Helvetica Neue", Arial, "DejaVu Sans", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 6px; }
h2 { font-size: 18px; margin: 0 0 12px; overflow-wrap: anywhere; }
h3 { font-size: 14px; margin: 0 0 6px; font-weight: 600; overflow-wrap: anywhere; }
p { margin: 0 0 10px; }
.about, .hint, .threads, .facts, .spread, .legend, figcaption { color: var(--soft); font-size: 13px; font-weight: 400; }
.about { overflow-wrap: anywhere; }
.hint { margin-left: 8px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 20px 0; }
.tile, .card, .op { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.tile { padding: 12px 16px; }
.tile b { display: block; font-size: 24px; line-height: 1.25; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: 13px; }
.card, .op { padding: 18px 20px; margin: 0 0 16px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 20px; }
figure { margin: 0; }
figcaption { margin-bottom: 4px; }
.roofline { display: block; width: 100%; height: auto; font-size: 11px; font-family: inherit; }
.roofline text { fill: var(--soft); }
.roofline .number { fill: var(--text); font-size: 10.5px; }
.grid { stroke: var(--line); stroke-width: 1; }
.roof { stroke-width: 1.5; }
.roof.products { stroke: var(--products); stroke-dasharray: 5 3; }
.roof.core { stroke: var(--core); } .roof.shared { stroke: var(--shared); } .roof.memory { stroke: var(--memory); }
.point { stroke: var(--card); stroke-width: 1; }
path.met { fill: var(--met); } path.missed { fill: var(--missed); } path.plain { fill: var(--plain); }
.sign { margin-right: 6px; vertical-align: -1px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 12px 0 0; padding: 0; list-style: none; }
.legend li { overflow-wrap: anywhere; }
.legend b, .op-number { color: var(--text); font-variant-numeric: tabular-nums; }
.op-number { display: inline-block; min-width: 26px; padding: 0 6px; border-radius: 6px; background: var(--page);
  border: 1px solid var(--line); font-size: 13px; text-align: center; }
.row { padding: 12px 0 2px; border-top: 1px solid var(--line); }
.threads { margin-left: 6px; white-space: nowrap; }
.bar-line { display: grid; grid-template-columns: minmax(0, 190px) minmax(0, 1fr) 215px; gap: 12px; align-items: center; }
.who { font-size: 13px; overflow-wrap: anywhere; line-height: 1.3; }
.value { font-size: 13px; font-variant-numeric: tabular-nums; white-space: nowrap; }
.track { display: block; }
.bar.ours { fill: var(--ours); } .bar.base { fill: var(--base); } .bar.peer { fill: var(--peer); }
.whisker { stroke: var(--whisker); stroke-width: 1.5; }
.limit-mark { stroke: var(--limit); stroke-width: 2; }
.target-mark { stroke: var(--target); stroke-width: 2; stroke-dasharray: 3 2; }
.key { display: inline-block; width: 14px; height: 10px; border-radius: 2px; margin-right: 6px; }
.key.ours { background: var(--ours); } .key.base { background: var(--base); } .key.peer { background: var(--peer); }
.key.limit { width: 2px; height: 12px; background: var(--limit); vertical-align: -1px; }
.key.target { width: 2px; height: 12px; vertical-align: -1px;
  background: repeating-linear-gradient(var(--target) 0 3px, transparent 3px 5px); }
.key.core, .key.shared, .key.memory, .key.products { height: 3px; vertical-align: 3px; }
.key.core { background: var(--core); } .key.shared { background: var(--shared); }
.key.memory { background: var(--memory); }
.key.products { background: repeating-linear-gradient(90deg, var(--products) 0 5px, transparent 5px 8px); }
.facts { margin: 4px 0 8px; display: flex; flex-wrap: wrap; gap: 0 18px; }
.facts span { overflow-wrap: anywhere; }
.failed .facts { color: var(--missed); font-weight: 600; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; width: 100%; }
th, td { padding: 5px 14px 5px 0; text-align: left; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--soft); font-weight: 500; }
summary { cursor: pointer; font-weight: 600; }
details .scroll { margin-top: 10px; }
@media (max-width: 680px) {
  main { padding: 20px 12px 40px; }
  .card, .op { padding: 14px 12px; }
  .bar-line { grid-template-columns: minmax(0, 1fr) auto; gap: 0 10px; margin-bottom: 6px; }
  .track { grid-row: 2; grid-column: 1 / -1; }
}
`;
