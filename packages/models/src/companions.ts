import { lstatSync, realpathSync, statSync, writeFileSync } from "node:fs";
import { basename, dirname, isAbsolute, join, relative } from "node:path";
import { MlxtsError, readPlainFile } from "@mlxts/core";

/** Files of a checkpoint that are copied as they are. */
const COMPANIONS = [
  "generation_config.json",
  "tokenizer.json",
  "tokenizer_config.json",
  "special_tokens_map.json",
  "added_tokens.json",
  "chat_template.jinja",
  "chat_template.json",
  "vocab.json",
  "merges.txt",
];
const MAX_COMPANION_BYTES = 1 << 30;

const isInside = (folder: string, path: string): boolean => {
  const steps = relative(folder, path);
  return steps !== ".." && !/^\.\.[/\\]/.test(steps) && !isAbsolute(steps);
};

/** The directories where a checkpoint's files may lie: its own, and for a snapshot in the Hugging Face cache that of the blobs. */
function foldersOf(directory: string): string[] {
  const real = realpathSync(directory);
  const above = dirname(real);
  return basename(above) === "snapshots" ? [real, join(dirname(above), "blobs")] : [real];
}

/**
 * Refuses a file that a symbolic link fetches from outside the checkpoint. Otherwise a checkpoint from a stranger could
 * have a private file of the user copied into the output.
 * @throws MlxtsError `Io` for such a file, a pipe, a device or a loop of links
 */
export function checkInside(op: string, directory: string, path: string): void {
  const refuse = (reason: string, cause?: unknown) =>
    new MlxtsError("Io", `${op}: ${path} ${reason}`, { path, operation: "read" }, cause);
  let real: string;
  try {
    real = realpathSync(path);
    if (!statSync(real).isFile()) throw refuse("is not a file");
    if (foldersOf(directory).some((folder) => isInside(folder, real))) return;
  } catch (error) {
    if (error instanceof MlxtsError) throw error;
    throw refuse(`cannot be read: ${(error as Error).message}`, error);
  }
  throw refuse(`is a symbolic link that leaves the directory, to ${real}: put the file itself there`);
}

/** Copies the files beside the weights from one checkpoint directory to another. */
export function copyCompanions(op: string, from: string, to: string): void {
  for (const name of COMPANIONS) {
    const path = join(from, name);
    if (lstatSync(path, { throwIfNoEntry: false }) === undefined) continue;
    checkInside(op, from, path);
    writeFileSync(join(to, name), readPlainFile(path, MAX_COMPANION_BYTES), { flag: "wx" });
  }
}
