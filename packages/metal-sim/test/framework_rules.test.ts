import { execFile, execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { withClang } from "@mlxts/test-kit/clang";
import { expect, it } from "vitest";

const program = fileURLToPath(new URL("../../../build/metal-sim/rules", import.meta.url));
const missing = existsSync(program) ? undefined : "not built, run `npm run metal-sim`";

function run(name: string): Promise<{ signal: NodeJS.Signals | null | undefined; code: unknown; stderr: string }> {
  return new Promise((resolve) =>
    execFile(program, [name], { timeout: 50_000 }, (error, _, stderr) =>
      resolve({ signal: error?.signal ?? null, code: error ? error.code : 0, stderr }),
    ),
  );
}

const RULES: Record<string, string> = {
  "barrier-scope": "memoryBarrierWithScope of no scope",
  "buffer-index": "setBuffer at an index above 30",
  "buffer-missing": "a dispatch without a buffer for `x`",
  "buffer-nil": "a dispatch without a buffer for `y`",
  "buffer-offset": "setBuffer at an offset that is no multiple of 4",
  "buffer-past-end": "setBuffer at an offset past the buffer's end",
  "buffer-too-short": "a dispatch with too few bytes for `y`",
  "bytes-empty": "setBytes takes 1 to 4096 bytes",
  "bytes-index": "setBytes at an index above 30",
  "bytes-too-long": "setBytes takes 1 to 4096 bytes",
  "capture-stop": "a capture is stopped that has not been started",
  "commit-open": "commit with an open encoder",
  "commit-twice": "commit twice",
  "debug-group-open": "endEncoding with an open debug group",
  "debug-group-pop": "popDebugGroup without pushDebugGroup",
  "empty-buffer": "a buffer of no bytes",
  "encode-after-commit": "an encoder is made after commit",
  "encode-after-end": "a call on an encoder after endEncoding",
  "end-twice": "endEncoding twice",
  "fence-after-work": "waitForFence after the encoder's first command",
  "fence-missing": "an untracked buffer is used by two encoders that no fence orders",
  "fence-not-chained": "an untracked buffer is used by two encoders that no fence orders",
  "fence-not-updated": "an untracked buffer is used by two encoders that no fence orders",
  "fence-order": "waitForFence after updateFence of the same fence in one encoder",
  "fill-multiple": "fillBuffer of a range that is no multiple of 4",
  "fill-past-end": "fillBuffer past the buffer's end",
  "handler-after-commit": "addCompletedHandler after commit",
  "long-buffer": "a buffer longer than maxBufferLength",
  "no-copy-length": "a no-copy buffer that is no whole number of pages of 16384 bytes",
  "no-copy-start": "a no-copy buffer that does not start on a page of 16384 bytes",
  "no-pipeline": "a dispatch without a pipeline",
  "no-pool": "an object is autoreleased with no pool in place",
  "no-threadgroups": "a dispatch of no threadgroups",
  "no-threads": "a dispatch of no threads",
  "over-released": "a message `release` to an object that has been released",
  "params-too-short": "a dispatch with too few bytes for `p`",
  "released-no-pool": "an object of Metal is released with no pool in place",
  "residency-unknown": "an allocation is removed from a residency set that it is not in",
  "threadgroup-memory-limit": "more threadgroup memory than there is",
  "threadgroup-memory-missing": "a dispatch without threadgroup memory for `tile`",
  "threadgroup-memory-multiple": "threadgroup memory that is no multiple of 16 bytes",
  "too-many-threads": "a dispatch of more threads than the pipeline's threadgroups may have",
  "two-encoders": "an encoder is made while another of the command buffer is open",
  "used-after-release": "a buffer is released while the GPU uses it",
};

const rules = () => {
  it("has a case for each", () => {
    const names = execFileSync(program, { encoding: "utf8" }).trim().split("\n");
    expect(names).toEqual([...Object.keys(RULES), "none"].sort());
  });

  it.each(Object.entries(RULES))("a program that breaks %s ends with the rule", async (name, rule) => {
    expect(await run(name)).toEqual({ signal: "SIGABRT", code: null, stderr: `metal-sim: broken rule: ${rule}\n` });
  });

  it("a program that keeps them computes", async () => {
    expect(await run("none")).toEqual({ signal: null, code: 0, stderr: "" });
  });
};

withClang("rules of Metal", rules, missing);
