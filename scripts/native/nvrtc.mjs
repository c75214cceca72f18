// NVIDIA's compiler NVRTC, from PyPI, which makes PTX without a GPU or a toolkit: `installed`, `install`, and `Compilers`,
// as many processes as there are processors.
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, statSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { core, root } from "./clang.mjs";

export const VERSION = "13.0.88";
const folder = join(root, "build", "nvrtc");
const libraries = join(folder, "nvidia", "cu13", "lib");
const library = join(libraries, "libnvrtc.so.13");
const builtins = join(libraries, "libnvrtc-builtins.so.13.0");
const source = join(root, "scripts", "native", "nvrtc.cpp");
const program = join(folder, "nvrtc");

/** What the translated texts include. */
export const headers = ["cuda_metal.h", "cuda_machine.h"].map((name) => join(core, name));

/** Whether NVRTC is in this clone, of the version wanted. */
export const installed = () =>
  [library, builtins, join(folder, `nvidia_cuda_nvrtc-${VERSION}.dist-info`)].every((path) => existsSync(path));

/** Puts NVRTC into the clone's build folder if it is not there; throws one sentence that says what to do. */
export function install() {
  if (installed()) return;
  const args = ["-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", folder];
  const { status, error, stderr } = spawnSync("python3", [...args, `nvidia-cuda-nvrtc==${VERSION}`], {
    encoding: "utf8",
  });
  if (status === 0 && installed()) return;
  const why = error ? "python3 is not installed" : (stderr?.trim().split("\n").at(-1) ?? "");
  throw new Error(
    `CUDA kernels need NVIDIA's compiler: install Python 3 with pip, so that \`python3 -m pip install ` +
      `nvidia-cuda-nvrtc==${VERSION}\` runs (${why})`,
  );
}

/** Builds the program that runs NVRTC. */
function buildProgram() {
  if (existsSync(program) && statSync(program).mtimeMs >= statSync(source).mtimeMs) return;
  mkdirSync(folder, { recursive: true });
  const flags = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-o", program, source, "-ldl"];
  for (const compiler of ["c++", "clang++-19"]) {
    const { status, error, stderr } = spawnSync(compiler, flags, { encoding: "utf8" });
    if (status === 0) return;
    if (!error) throw new Error(`nvrtc.cpp does not compile:\n${stderr}`);
  }
  throw new Error("CUDA kernels need a C++20 compiler for scripts/native/nvrtc.cpp (Debian: apt-get install g++)");
}

/** A process that compiles one text after another. */
class Compiler {
  #child;
  #read = Buffer.alloc(0);
  #waiting;

  constructor() {
    this.#child = spawn(program, [library, builtins, ...headers], { stdio: ["pipe", "pipe", "inherit"] });
    this.#child.stdout.on("data", (data) => this.#receive(data));
    this.#child.on("exit", (status) => this.#waiting?.reject(new Error(`NVRTC's process ended with ${status}`)));
  }

  #receive(data) {
    this.#read = Buffer.concat([this.#read, data]);
    const end = this.#read.indexOf("\n");
    if (end < 0 || this.#waiting === undefined) return;
    const [state, bytes] = this.#read.toString("latin1", 0, end).split(" ");
    if (this.#read.length < end + 1 + Number(bytes)) return;
    const text = this.#read.toString("utf8", end + 1, end + 1 + Number(bytes));
    this.#read = this.#read.subarray(end + 1 + Number(bytes));
    const { resolve, reject } = this.#waiting;
    this.#waiting = undefined;
    if (state === "ok") resolve(text);
    else reject(new Error(text));
  }

  compile({ name, text, options }) {
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
      this.#child.stdin.write(`${[name, Buffer.byteLength(text), ...options].join(" ")}\n${text}`);
    });
  }

  close() {
    this.#child.stdin.end();
  }
}

/** As many compilers as there are processors; jobs wait for one. */
export class Compilers {
  #idle = [];
  #made = 0;
  #queue = [];

  constructor() {
    buildProgram();
  }

  /** The PTX of a text; rejects with the compiler's log. */
  compile(job) {
    return new Promise((resolve, reject) => {
      this.#queue.push({ job, resolve, reject });
      this.#next();
    });
  }

  async #next() {
    if (this.#idle.length === 0 && this.#made < availableParallelism()) {
      this.#idle.push(new Compiler());
      this.#made++;
    }
    if (this.#idle.length === 0 || this.#queue.length === 0) return;
    const compiler = this.#idle.pop();
    const { job, resolve, reject } = this.#queue.shift();
    try {
      resolve(await compiler.compile(job));
    } catch (error) {
      reject(error);
    }
    this.#idle.push(compiler);
    this.#next();
  }

  close() {
    for (const compiler of this.#idle) compiler.close();
  }
}
