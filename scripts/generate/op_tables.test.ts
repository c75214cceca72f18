import { defineOp } from "@mlxts/core";
import { expect, it } from "vitest";
import { withTables } from "./op_tables.ts";

const { op } = defineOp({
  name: "scaleRows",
  summary: "a * x | b",
  inputs: {
    x: { dtype: ["f32", "bf16"], shape: "... D", doc: "rows of `a|b`" },
    mask: { dtype: ["u8"], shape: "...", optional: true },
    q: {
      type: "Packed",
      tensors: { codes: { dtype: ["u32"], shape: "R C" } },
      attributes: { bits: { kind: "choice", values: [4, 8], doc: "of a code" } },
      doc: "codes",
    },
  },
  outputs: {
    out: { dtype: ["=x"], shape: "... D", inPlace: ["x"], doc: "scaled" },
    sums: { dtype: ["f32"], shape: "...", optional: true, needs: ["every"] },
  },
  params: {
    eps: { kind: "number", default: 1e-6, above: 0 },
    every: { kind: "number", integer: true, min: 1, optional: true },
    kind: { kind: "choice", values: ["a", "b"], doc: "which" },
  },
  encode() {},
});

const TABLES = `<!-- op scaleRows -->
| tensor | shape | dtype |  |
| --- | --- | --- | --- |
| \`x\` | [..., D] | f32, bf16 | rows of \`a\\|b\` |
| \`mask\` | [...] | u8 | optional |
| \`q\` |  | \`Packed\` | codes |
| \`out\` (output) | [..., D] | that of \`x\` | scaled; may be exactly \`x\` |
| \`sums\` (output) | [...] | f32 | written when asked for, with \`every\` |

| option | values | default |  |
| --- | --- | --- | --- |
| \`eps\` | a finite number > 0 | 1e-6 |  |
| \`every\` | an integer ≥ 1 | – |  |
| \`kind\` | a, b | required | which |
<!-- /op -->
`;

it("tables come from descriptors, into their places", () => {
  const readme =
    "# x\n\n<!-- ops -->\nold\n<!-- /ops -->\n\n## scaleRows\n\n<!-- op scaleRows -->\nold\n<!-- /op -->\n\nAfter.\n";
  const made = withTables(readme, [op]);
  expect(made).toBe(
    `# x\n\n<!-- ops -->\n| op | what it computes |\n| --- | --- |\n| [\`scaleRows\`](#scalerows) | a \\* x \\| b |\n<!-- /ops -->\n\n## scaleRows\n\n${TABLES}\nAfter.\n`,
  );
  expect(withTables(made, [op])).toBe(made);
});

it("an op without a section gets one, before the one about Metal", () => {
  expect(withTables("# x\n\n<!-- ops -->\n<!-- /ops -->\n\n## Metal\n\nText.\n", [op])).toContain(
    `<!-- /ops -->\n\n## scaleRows\n\n${TABLES}\n## Metal\n`,
  );
  expect(withTables("# x\n\n<!-- ops -->\n<!-- /ops -->\n", [op])).toContain(`\n\n## scaleRows\n\n${TABLES}`);
});

it("the parts of a record have a table of their own", () => {
  expect(withTables("<!-- ops -->\n<!-- /ops -->\n<!-- record Packed -->\n<!-- /record -->\n", [op])).toContain(
    "<!-- record Packed -->\n| part | shape | dtype or values |  |\n| --- | --- | --- | --- |\n" +
      "| `codes` | [R, C] | u32 |  |\n| `bits` |  | 4, 8 | of a code |\n<!-- /record -->\n",
  );
});
