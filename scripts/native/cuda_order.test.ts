import { expect, it } from "vitest";
import { orderInstructions, withoutOrder } from "./cuda_order.ts";

const PTX = `.visible .entry mlxts_k()
{
	bar.sync 	0;
	@%p1 bar.sync 1, 128;
	bar.arrive 2, 64;
	cp.async.commit_group;
	cp.async.wait_group 1;
	{ .reg .pred done; retry: mbarrier.try_wait.parity.shared::cta.b64 done, [%r1], %r2; @done bra ready; bra retry; ready: }
	wgmma.wait_group.sync.aligned 0;
	fence.proxy.async;
	griddepcontrol.wait;
	griddepcontrol.launch_dependents;
	ret;
}`;

it("finds each instruction that waits or orders", () => {
  expect(orderInstructions(PTX).map(({ text }) => text)).toEqual([
    "bar.sync 	0;",
    "@%p1 bar.sync 1, 128;",
    "cp.async.wait_group 1;",
    "mbarrier.try_wait.parity.shared::cta.b64 done, [%r1], %r2;",
    "wgmma.wait_group.sync.aligned 0;",
    "fence.proxy.async;",
    "griddepcontrol.wait;",
  ]);
});

it("leaves one out, and ends the loop that would wait for it", () => {
  const [first, second, , tried] = orderInstructions(PTX) as Required<ReturnType<typeof orderInstructions>>;
  for (const [one, index] of [[first, 0] as const, [second, 1] as const]) {
    const left = orderInstructions(withoutOrder(PTX, one as never)).map(({ text }) => text);
    expect(left).toEqual(
      orderInstructions(PTX)
        .map(({ text }) => text)
        .filter((_, i) => i !== index),
    );
  }
  expect(withoutOrder(PTX, tried as never)).toContain("retry: setp.eq.u32 done, 0, 0; @done bra ready;");
});
