// A reporter of vitest that writes what came out of each test file as soon as the file has ended, one line of JSON each: a
// run that is ended before its own report has these. The file is named by MLXTS_FINISHED_FILES.
import { appendFileSync } from "node:fs";

export default class FinishedFiles {
  onTestModuleEnd(module) {
    const counts = { passed: 0, failed: 0, skipped: 0 };
    const failures = [];
    for (const test of module.children.allTests()) {
      const { state, errors = [] } = test.result();
      if (state in counts) counts[state]++;
      if (state === "failed") failures.push({ name: test.fullName, message: errors[0]?.message ?? "" });
    }
    for (const { message } of module.errors()) {
      counts.failed++;
      failures.push({ name: "the file itself", message });
    }
    appendFileSync(
      process.env.MLXTS_FINISHED_FILES,
      `${JSON.stringify({ file: module.moduleId, counts, failures })}\n`,
    );
  }
}
