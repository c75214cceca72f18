// What all `mlxts bench` commands share: the options for reports, and writing them.
import { Device, type DeviceKind } from "@mlxts/core";
import { systemAbout, versions } from "./about.ts";
import { reportHtml } from "./bench_html.ts";
import { type BenchReport, reportMarkdown } from "./bench_report.ts";
import { path } from "./options.ts";
import { outputFile, writeOutput } from "./output_file.ts";

export const REPORT_OPTIONS = {
  json: path("<file>", "write the report as JSON"),
  html: path("<file>", "write the report as one page with charts"),
} as const;

/** Checks the files for reports before any work is done; what it returns prints a report and writes them. */
export function reportWriter(
  command: string,
  { json, html }: { json: string | undefined; html: string | undefined },
): (report: BenchReport) => void {
  const file = (flag: string, given: string | undefined) =>
    given === undefined ? undefined : outputFile(command, flag, given, { inPlace: true });
  const files = { json: file("--json", json), html: file("--html", html) };
  return (report) => {
    process.stdout.write(reportMarkdown(report));
    if (files.json !== undefined) writeOutput(files.json, `${JSON.stringify(report, null, 2)}\n`);
    if (files.html !== undefined) writeOutput(files.html, reportHtml(report));
  };
}

/** What every report begins with. */
export function reportHead(tool: BenchReport["tool"], kind: DeviceKind = "cpu") {
  using device = Device.open(kind);
  const { name, level } = device;
  return {
    tool,
    versions: versions(),
    system: systemAbout(),
    device: { kind, name, level },
    date: new Date().toISOString(),
  };
}
