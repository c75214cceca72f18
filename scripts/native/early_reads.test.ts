import { expect, it } from "vitest";
import { earlyFaults } from "./early_reads.ts";

const WAIT =
  "// begin inline asm\n\t// sm_90: griddepcontrol.wait; griddepcontrol.launch_dependents;\n\t// end inline asm";

const WAIT_WHEN_KNOWN =
  "{\n\t.reg .pred rare;\n\tsetp.eq.b32 rare, %r1, 7;\n\t// sm_90: @rare griddepcontrol.wait; @!rare griddepcontrol.wait;\n\t}";

/** A kernel of the buffers 0, 1 and 2 and of parameters, with the addresses of the first two in %rd1 and %rd2. */
const kernel = (...body: string[]) => `.version 9.0
.target sm_80
.visible .entry mlxts_name(
	.param .u64 .ptr .align 1 name_param_0,
	.param .u64 .ptr .align 1 name_param_1,
	.param .u64 .ptr .align 1 name_param_2,
	.param .align 4 .b8 name_param_3[8]
)
.maxntid 256
{
	.reg .pred %p<2>;
	.reg .b64 %rd<9>;
	ld.param.u64 %rd1, [name_param_0];
	ld.param.u64 %rd2, [name_param_1];
	ld.param.u32 %r1, [name_param_3+4];
	mul.wide.u32 %rd3, %r1, 4;
	add.s64 %rd4, %rd1, %rd3;
	add.s64 %rd5, %rd2, %rd3;
	setp.eq.s32 %p1, %r1, 0;
	${body.join("\n\t")}
	ret;
}
`;
const faults = (...body: string[]) => earlyFaults(kernel(...body), new Set([1]));

it("lets a kernel read what it may read before it waits, and anything afterwards", () => {
  expect(faults("ld.global.v4.u32 \t{%r2, %r3, %r4, %r5}, [%rd5+16];", WAIT, "ld.global.u32 %r6, [%rd4];")).toEqual([]);
  expect(faults("st.shared.u32 [%r7], %r1;", "ld.shared.u32 %r8, [%r7];", WAIT, "st.global.u32 [%rd4], %r8;")).toEqual(
    [],
  );
});

it("knows the wait for what has been computed", () => {
  expect(faults(WAIT_WHEN_KNOWN, "ld.global.u32 %r6, [%rd4];")).toEqual([]);
  expect(faults("ld.global.u32 %r6, [%rd4];", WAIT_WHEN_KNOWN)).toEqual(["ld.global.u32 reads buffer 0"]);
});

it("asks nothing of a kernel that is made to wait at its begin", () => {
  expect(faults("ld.global.u32 %r6, [%rd4];", "st.global.u32 [%rd4], %r6;")).toEqual([]);
});

it("finds reads of other buffers, whichever way their addresses come", () => {
  expect(faults("ld.global.u32 %r6, [%rd4];", WAIT)).toEqual(["ld.global.u32 reads buffer 0"]);
  expect(faults("selp.b64 %rd6, %rd4, %rd5, %p1;", "ld.global.nc.u32 %r6, [%rd6];", WAIT)).toEqual([
    "ld.global.nc.u32 reads buffer 0",
  ]);
  expect(faults("cp.async.cg.shared.global [%r7], [%rd4], 16, 16;", WAIT)).toEqual([
    "cp.async.cg.shared.global reads buffer 0",
  ]);
  expect(faults("mov.u64 %rd6, 4096;", "ld.u32 %r6, [%rd6];", WAIT)).toEqual(["ld.u32 reads from anywhere"]);
  // The address comes around a loop.
  expect(
    faults(
      "mov.b64 %rd7, %rd5;",
      "$again:",
      "ld.global.u32 %r6, [%rd7];",
      "mov.b64 %rd7, %rd8;",
      "mov.b64 %rd8, %rd4;",
      "@%p1 bra $again;",
      WAIT,
    ),
  ).toEqual(["ld.global.u32 reads buffer 0"]);
});

it("finds what is done on one path only", () => {
  const read = "ld.global.u32 %r6, [%rd4];";
  expect(faults("@%p1 bra $other;", WAIT, "bra.uni $end;", "$other:", read, WAIT, "$end:")).toEqual([
    "ld.global.u32 reads buffer 0",
  ]);
  expect(faults("@%p1 bra $other;", WAIT, "$other:", read)).toEqual(["it ends", "ld.global.u32 reads buffer 0"]);
  expect(faults("@%p1 bra $other;", WAIT, "bra.uni $end;", "$other:", WAIT, read, "$end:")).toEqual([]);
});

it("finds writes and ends", () => {
  expect(faults("st.global.u32 [%rd5], %r1;", WAIT)).toEqual(["it has st.global.u32"]);
  expect(faults("red.global.add.u32 [%rd5], 1;", WAIT)).toEqual(["it has red.global.add.u32"]);
  expect(faults("@%p1 ret;", WAIT)).toEqual(["it ends"]);
});
