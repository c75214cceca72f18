// One process at a time does a piece of work; others wait.
import { readFileSync, rmSync, writeFileSync } from "node:fs";

function alive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code !== "ESRCH";
  }
}

/** Makes the file with this process's number in it, unless another process that lives has done so. */
function take(path) {
  try {
    writeFileSync(path, String(process.pid), { flag: "wx" });
    return true;
  } catch (error) {
    if (error.code !== "EEXIST") throw error;
    return false;
  }
}

/** The process that holds the file; 0 where it has just let go, or has not written its number yet. */
function holderOf(path) {
  try {
    return Number(readFileSync(path, "utf8"));
  } catch {
    return 0;
  }
}

/** Runs `work` while no other process holds the file `path`; a holder that has died does not count. */
export function locked(path, work) {
  const pause = new Int32Array(new SharedArrayBuffer(4));
  for (let waited = 0; !take(path); waited++) {
    const holder = holderOf(path);
    if (holder && !alive(holder)) rmSync(path, { force: true });
    if (waited === 50) console.error(`waiting for process ${holder}, which holds ${path}`);
    Atomics.wait(pause, 0, 0, 100);
  }
  const release = () => rmSync(path, { force: true });
  process.once("exit", release);
  try {
    return work();
  } finally {
    release();
    process.off("exit", release);
  }
}
