// Configures and builds everything native. Incremental: a second run only checks.
import { spawnSync } from "node:child_process";
import { availableParallelism } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const build = join(root, "build", "native");

function run(command, args, hint) {
  const { status, error, stdout, stderr } = spawnSync(command, args, { cwd: root, encoding: "utf8" });
  if (error || status !== 0) {
    process.stderr.write(`${stdout ?? ""}${stderr ?? ""}`);
    console.error(error ? `${command}: ${error.message} — ${hint}` : `${command} failed with status ${status}`);
    process.exit(1);
  }
}

const hint = "install CMake and a C++20 compiler (Debian: apt-get install cmake g++ make; macOS: xcode-select --install and cmake)";
run("cmake", ["-S", root, "-B", build, ...process.argv.slice(2)], hint);
run("cmake", ["--build", build, "--parallel", String(availableParallelism())], hint);
