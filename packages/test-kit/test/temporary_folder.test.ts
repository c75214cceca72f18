import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { removeTemporaryFolders, temporaryFolder } from "../src/temporary_folder.ts";

it("temporary folders are removed with what is in them, each once", () => {
  const [one, other] = [temporaryFolder("kit"), temporaryFolder("kit")];
  expect(one).not.toBe(other);
  writeFileSync(join(one, "file"), "text");
  removeTemporaryFolders();
  expect([one, other].map((folder) => existsSync(folder))).toEqual([false, false]);
  expect(removeTemporaryFolders).not.toThrow();
});
