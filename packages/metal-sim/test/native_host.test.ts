import { spawnSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { withClang } from "@mlxts/test-kit/clang";
import { afterAll, beforeAll, expect, it } from "vitest";
import { compile, engine, findClang } from "../src/index.ts";

const local = (name: string) => fileURLToPath(new URL(name, import.meta.url));

withClang("engine.h from C", () => {
  let folder = "";
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "metal-sim-host-"));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  /** Compiles a host; returns what runs it. */
  function host(name: string) {
    const { library } = engine();
    const program = join(folder, name);
    const strict = ["-x", "c", "-Wall", "-Wextra", "-Werror"];
    const linked = ["-x", "none", library, "-o", program, `-Wl,-rpath,${dirname(library)}`];
    const built = spawnSync(findClang().path, [...strict, local(`${name}.c`), ...linked], { encoding: "utf8" });
    expect(built.stderr).toBe("");
    return (args: readonly string[]) => {
      const { stdout, stderr, status } = spawnSync(program, args, { encoding: "utf8" });
      return { lines: stdout.split("\n"), stderr, status };
    };
  }

  const outside =
    "out-of-bounds twice: out of bounds: 4-byte read of `in` at byte 132, which has 132 bytes, at twice.metal:5 by " +
    "thread 1 of threadgroup (1, 0, 0)";
  const expected = [
    "Untranslatable: nonsense.metal:1: `#include <metal",
    "twice: 3 arguments, twice.metal:3, none called thrice: -1",
    "float in 0 1",
    "0 64 -1",
    outside,
    "0 64 -1",
    outside,
    "",
  ];

  it("compiles text through the command, reflects and runs; a text that is in the index needs no command", () => {
    const run = host("native_host");
    // A command that keeps count.
    const script = join(folder, "counted.mjs");
    const calls = join(folder, "calls");
    writeFileSync(calls, "");
    writeFileSync(
      script,
      `import { appendFileSync } from "node:fs";\nappendFileSync(${JSON.stringify(calls)}, process.argv[4] + "\\n");\n` +
        `await import(${JSON.stringify(local("../bin/metal-sim.mjs"))});\n`,
    );
    const index = join(folder, "new", "index");
    const calledFor = () => {
      writeFileSync(calls, "");
      expect(run([process.execPath, script, index])).toEqual({ lines: expected, stderr: "", status: 0 });
      return readFileSync(calls, "utf8").split("\n").length - 1;
    };
    const entry = () => {
      const [name, ...others] = readdirSync(index);
      expect(others).toEqual([]);
      return join(index, name as string);
    };
    // The nonsense is always compiled.
    expect(calledFor()).toBe(2);
    const [module, first] = readFileSync(entry(), "utf8").split("\n") as [string, string];
    expect(calledFor()).toBe(1);

    const whole = readFileSync(entry(), "utf8");
    for (const [stale, text] of [
      ["a compiler that is found earlier", whole.replace(first, `- ${script}`)],
      ["another size of a file", whole.replace(/^(\d+)\.\d+\./m, "$1.1.")],
      ["nothing", ""],
    ] as const) {
      writeFileSync(entry(), text);
      expect(calledFor(), stale).toBe(2);
      expect(readFileSync(entry(), "utf8")).toBe(whole);
    }
    expect(calledFor()).toBe(1);
    rmSync(module);
    expect(calledFor()).toBe(2);
  });

  it("opens as many modules as there is memory for", () => {
    const text = [
      "#include <metal_stdlib>",
      "using namespace metal;",
      "kernel void more(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] += simd_sum(1.0f); }",
      "",
    ].join("\n");
    const { modulePath } = compile({ path: "more.metal", text });
    const copies = Array.from({ length: 1500 }, (_, i) => join(folder, `${i}.so`));
    for (const copy of copies) copyFileSync(modulePath, copy);
    expect(host("many_modules")(copies)).toEqual({ lines: ["1500 modules, 1500", ""], stderr: "", status: 0 });
  });

  it("takes no memory of the engine or of the module for a buffer's, however near", () => {
    const text = [
      "#include <metal_stdlib>",
      "using namespace metal;",
      "constant float kTable[4] = {1, 2, 3, 4};",
      "kernel void near(device float* x [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {",
      "  threadgroup_barrier(mem_flags::mem_device);",
      "  x[i] = simd_sum(kTable[i & 3]);",
      "}",
      "",
    ].join("\n");
    const { modulePath } = compile({ path: "near.metal", text }, "check");
    const lines = ["80, 0 reports", "80, 0 reports", ""];
    expect(host("near_memory")([modulePath])).toEqual({ lines, stderr: "", status: 0 });
  });
});
