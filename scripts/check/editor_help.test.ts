import { readFileSync } from "node:fs";
import { inputTensors, opParams } from "@mlxts/core";
import ts from "typescript";
import { describe, expect, it } from "vitest";
import { allOps, root } from "./packages.ts";

// What an editor shows of an op, asked of TypeScript's own language service.

const { compilerOptions } = ts.parseConfigFileTextToJson("", readFileSync(`${root}tsconfig.base.json`, "utf8"))
  .config as { compilerOptions: object };
const options = ts.convertCompilerOptionsFromJson({ ...compilerOptions, noUnusedLocals: false }, root).options;

/** A program of a user, beside the sources of op packages; places in it are asked for by a piece of its text. */
function editor(text: string) {
  const name = `${root}packages/models/src/user_program.ts`;
  const service = ts.createLanguageService({
    getCompilationSettings: () => options,
    getScriptFileNames: () => [name],
    getScriptVersion: () => "1",
    getScriptSnapshot: (path) => {
      const content = path === name ? text : ts.sys.readFile(path);
      return content === undefined ? undefined : ts.ScriptSnapshot.fromString(content);
    },
    getCurrentDirectory: () => root,
    getDefaultLibFileName: ts.getDefaultLibFilePath,
    fileExists: (path) => path === name || ts.sys.fileExists(path),
    readFile: (path) => (path === name ? text : ts.sys.readFile(path)),
    directoryExists: ts.sys.directoryExists,
    getDirectories: ts.sys.getDirectories,
    ...(ts.sys.realpath && { realpath: ts.sys.realpath }),
  });
  const at = (piece: string) => {
    expect(text.split(piece).length, `${piece} stands once in the program`).toBe(2);
    return text.indexOf(piece);
  };
  return {
    /** Type and documentation of the name at a place. */
    hover(piece: string) {
      const info = service.getQuickInfoAtPosition(name, at(piece));
      return { type: ts.displayPartsToString(info?.displayParts), doc: ts.displayPartsToString(info?.documentation) };
    },
    /** Names offered at the end of a piece, each with its documentation. */
    offered(piece: string): Map<string, string> {
      const place = at(piece) + piece.length;
      const entries = service.getCompletionsAtPosition(name, place, {})?.entries ?? [];
      return new Map(
        entries.map(({ name: entry }) => {
          const details = service.getCompletionEntryDetails(name, place, entry, {}, undefined, {}, undefined);
          return [entry, ts.displayPartsToString(details?.documentation)];
        }),
      );
    },
    errors: () =>
      service.getSemanticDiagnostics(name).map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, "\n")),
  };
}

describe("an editor", { timeout: 120_000 }, () => {
  const HEAD = `
import { Device } from "@mlxts/core";
import { gatedDeltaRule } from "@mlxts/delta-rule";
import { rmsNorm } from "@mlxts/norms";
const device = Device.open();
const encoder = device.encoder();
const x = device.tensor("f32", [1, 4]);
`;

  it("shows what an op does, and its inputs and options in words", () => {
    const user = editor(
      `${HEAD}export const out = rmsNorm(encoder, { x, weight: x }, { eps: 1e-5, rounding: "once" });`,
    );
    expect(user.errors()).toEqual([]);
    const { type, doc } = user.hover("rmsNorm(encoder");
    expect(type).toContain("(encoder: CommandEncoder, inputs: RmsNormInputs, options?: RmsNormOptions): Tensor");
    expect(doc).toContain("x / sqrt(mean(x²) + eps)");
    expect(user.hover("weight: x").doc).toBe("Factor of each column. [D], the dtype of `x` or f32.");
    expect(user.hover("eps: 1e-5")).toEqual({
      type: "(property) RmsNormOptions.eps?: number | undefined",
      doc: "Added to the mean square. A number ≥ 0, default 0.000001.",
    });
    expect(user.hover("out = rmsNorm").type).toBe("const out: Tensor");
  });

  it("offers options with their documentation", () => {
    const user = editor(`${HEAD}rmsNorm(encoder, { x, weight: x }, {  });`);
    const offered = user.offered("weight: x }, { ");
    expect([...offered.keys()]).toEqual(["eps", "rounding", "weightOffset"]);
    expect(offered.get("weightOffset")).toBe(
      "1 for checkpoints whose weight means 1 + w: Hugging Face Qwen3-Next and Qwen3.5. Default 0.",
    );
  });

  it("knows that outputs which were asked for are there, and only those", () => {
    const call = (more: string) =>
      editor(`${HEAD}
const { o, finalState } = gatedDeltaRule(encoder, { q: x, k: x, v: x, g: x, beta: x${more} }, { scale: 1 });
export const shapes = [o.shape, finalState.shape];`);
    expect(call(", finalState: true").errors()).toEqual([]);
    expect(call(", finalState: x").errors()).toEqual([]);
    expect(call("").errors()).toEqual(["'finalState' is possibly 'undefined'."]);
    expect(call(", finalState: true").hover("beta: x").doc).toBe("Strength of each write. [B, T, H], f32.");
    expect(call(", finalState: true").hover("finalState: true").doc).toMatch(
      /^State after the last token of each sequence/,
    );
    expect(call(", finalState: true").hover("finalState.shape")).toEqual({
      type: "const finalState: Tensor<Dtype>",
      doc: "State after the last token of each sequence. [N, H, V, K (kv: N, H, K, V)], f32.",
    });
  });

  it("underlines tensors and options that no op has", () => {
    const user = editor(`${HEAD}
gatedDeltaRule(encoder, { q: x, k: x, v: x, g: x, beta: x, gama: x }, { scale: 1 });
rmsNorm(encoder, { x, weight: x }, { epsilon: 1 });
rmsNorm(encoder, { x, weight: x, bias: x });
rmsNorm(encoder, { x, weight: x }, { rounding: "twice" });`);
    const errors = user.errors();
    expect(errors).toHaveLength(4);
    expect(errors[0]).toContain("is not assignable to type 'never'");
    expect(errors[1]).toContain("'epsilon'");
    expect(errors[2]).toContain("'bias'");
    expect(errors[3]).toContain('"twice"');
  });
});

const ops = await allOps();

describe("every tensor and option has its words", () => {
  it("finds the ops", () => expect(ops.length).toBeGreaterThan(25));

  it.each(ops.map((op) => [op.name, op] as const))("%s", (_, op) => {
    const specs = [...inputTensors(op), ...Object.entries(op.outputs), ...opParams(op)];
    expect(specs.filter(([, spec]) => !spec.doc).map(([name]) => name)).toEqual([]);
  });
});
