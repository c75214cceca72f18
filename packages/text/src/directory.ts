import { lstatSync, statSync } from "node:fs";
import { join } from "node:path";
import { MlxtsError, wrongKind } from "@mlxts/common/errors";

/** `org/name`: the form of a model's name on the Hugging Face hub. */
const HUB_ID = /^[A-Za-z0-9][\w.-]*\/[\w.-]+$/;

/**
 * Refuses a path that is not a directory with the file `name`.
 * @throws TypeError for another kind of value, MlxtsError `Io` that says what the path is
 */
export function checkDirectory(op: string, path: string, name: string, argument = "directory"): void {
  if (typeof path !== "string") throw wrongKind(op, argument, "be a string", path);
  const refuse = (reason: string, cause?: unknown) =>
    new MlxtsError("Io", `${op}: ${reason}`, { path, operation: "open" }, cause);
  let stat: ReturnType<typeof statSync>;
  try {
    stat = statSync(path, { throwIfNoEntry: false });
  } catch (error) {
    throw refuse((error as Error).message, error);
  }
  if (stat?.isDirectory()) {
    // A broken link passes here: reading it gives a better error.
    if (lstatSync(join(path, name), { throwIfNoEntry: false })) return;
    throw refuse(`${path} has no ${name}`);
  }
  if (stat) throw refuse(`${path} is a file — give the checkpoint's directory, which has a config.json`);
  const remedy = HUB_ID.test(path)
    ? ` — if it is a model's name on the Hugging Face hub, download it first (\`hf download ${path} --local-dir DIR\`) and give that directory`
    : "";
  throw refuse(`${path} does not exist${remedy}`);
}
