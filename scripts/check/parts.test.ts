// A run of the tests that is ended at its time keeps what came out before.
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { temporaryFolder } from "@mlxts/test-kit/temporary_folder";
import { expect, it } from "vitest";
import { root } from "./packages.ts";

it("failures of a run that is ended at its time count", { timeout: 300_000 }, () => {
  const folder = temporaryFolder("parts");
  const file = (name: string, text: string) =>
    writeFileSync(
      join(folder, name),
      `import { expect, it } from ${JSON.stringify(join(root, "node_modules/vitest/dist/index.js"))};\n${text}`,
    );
  // The largest file is the first that vitest runs.
  file(
    "a.test.mjs",
    `// ${"large ".repeat(100)}\nit("passes", () => {});\nit("fails", () => expect(1, "one").toBe(2));\n`,
  );
  file("b.test.mjs", 'it("takes long", () => new Promise((done) => setTimeout(done, 600_000)), 900_000);\n');
  // How long vitest takes to begin, other work on the machine decides.
  for (let seconds = 8; seconds <= 64; seconds *= 2) {
    const program = `
      const { Parts } = await import(${JSON.stringify(join(root, "scripts/check/parts.mjs"))});
      const parts = new Parts();
      const whole = await parts.vitest("test of parts", ["--root", ${JSON.stringify(folder)}], { until: Date.now() + ${seconds * 1000} });
      console.log("END", JSON.stringify({ whole, counts: parts.counts, failures: parts.failures }));`;
    const { stdout } = spawnSync(process.execPath, ["--input-type=module", "-e", program], {
      encoding: "utf8",
      cwd: root,
    });
    const { whole, counts, failures } = JSON.parse(stdout.split("END ")[1] as string);
    expect(whole).toBe(false);
    if (counts.passed === 0 && seconds < 64) continue;
    expect(counts).toEqual({ passed: 1, failed: 1, skipped: 0 });
    expect(failures).toEqual([expect.stringMatching(/^test of parts: .*a\.test\.mjs: fails\n {4}one/)]);
    break;
  }
});
