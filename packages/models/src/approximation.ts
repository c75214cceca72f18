import { type Device, wrongValue } from "@mlxts/core";

/** Values of the option `approximate`. */
export const APPROXIMATIONS = ["int8-activations"] as const;

/** How products with quantized matrices may differ from exact ones, for more speed. */
export type Approximation = (typeof APPROXIMATIONS)[number];

export function checkApproximation(op: string, device: Device, asked: Approximation | undefined): void {
  if (asked === undefined) return;
  if (!APPROXIMATIONS.includes(asked))
    throw wrongValue(op, "approximate", `be one of ${APPROXIMATIONS.join(", ")}`, asked);
  if (device.gpu) throw wrongValue(op, "approximate", "be left out on a GPU, whose products are exact", asked);
}
