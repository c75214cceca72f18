import { ACTIVATION_DTYPES, APPROXIMATIONS } from "@mlxts/models";
import { choice, flag } from "./options.ts";

/** What the commands that run a model are asked for. */
export const activationDtype = choice(
  "<dtype>",
  "dtype of activations, and so of caches; auto: the checkpoint's own where this device is faster with it",
  ACTIVATION_DTYPES,
  "auto",
);

export const approximate = choice(
  "<how>",
  "quantized products with other numbers, for more speed on a CPU; default: exact",
  APPROXIMATIONS,
);

export const noMap = flag(
  "read the weights into memory, so that their files may change meanwhile; else they are mapped",
);
