import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const folders = new Set<string>();

/** A folder that is removed after the tests of the file that runs: also where a module that several files share makes it. */
export function temporaryFolder(name: string): string {
  const folder = mkdtempSync(join(tmpdir(), `mlxts-${name}-`));
  folders.add(folder);
  return folder;
}

/** The set-up of each test file (setup.ts) has this done at its end. */
export function removeTemporaryFolders(): void {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
  folders.clear();
}
