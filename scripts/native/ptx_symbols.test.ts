import { expect, it } from "vitest";
import { entriesOf } from "./ptx_symbols.ts";

const HEAD = `.version 9.0
.target sm_80
.address_size 64
`;
const COMMENT = "	// .globl	two";
const DECLARED = `.func  (.param .b64 func_retval0) shared
()
;
.func deep
(
	.param .b64 deep_param_0
)
;`;
const VARIABLE = `.global .align 4 .b8 table[8] = {1, 2, 3, 4};`;
const ONE = `.visible .entry one(
	.param .u64 one_param_0
)
.maxntid 256, 1, 1
{
	call.uni (retval0),
	shared,
	(
	);
	ret;
}`;
const TWO = `.visible .entry two(
	.param .u64 two_param_0
)
{
	ret;
}`;
const SHARED = `.func  (.param .b64 func_retval0) shared()
{
	call.uni
	deep,
	(
	param0
	);
	ret;
}`;
const DEEP = `.func deep(
	.param .b64 deep_param_0
)
{
	ret;
}`;
const UNUSED = `.weak .func  (.param .b32 func_retval0) unused()
{
	ret;
}`;

it("each entry of a PTX stands by itself, with the functions that it calls", () => {
  const ptx = [HEAD, COMMENT, DECLARED, VARIABLE, ONE, COMMENT, TWO, SHARED, DEEP, UNUSED].join("\n");
  expect(Object.fromEntries(entriesOf(ptx))).toEqual({
    one: [HEAD, DECLARED, VARIABLE, ONE, SHARED, DEEP].join("\n"),
    two: [HEAD, VARIABLE, TWO].join("\n"),
  });
});

it("a PTX without entries has none", () => expect(entriesOf(`${HEAD}\n${UNUSED}`)).toEqual(new Map()));
