import type { BenchReport } from "./bench_report.ts";

/** A report as one page that needs nothing else. */
export function reportHtml(report: BenchReport): string {
  return `<!doctype html><title>${report.tool}</title>`;
}
