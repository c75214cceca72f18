import { type CommandEncoder, MlxtsError, type OpDescriptor } from "@mlxts/core";
import * as deltaRule from "@mlxts/delta-rule";
import * as mla from "@mlxts/mla";
import * as moe from "@mlxts/moe";
import * as nn from "@mlxts/nn";
import * as norms from "@mlxts/norms";
import * as quant4 from "@mlxts/quant4";
import { similar } from "./similar.ts";

// biome-ignore lint/suspicious/noExplicitAny: ops have differing signatures; their descriptors check the arguments
export type AnyOp = ((encoder: CommandEncoder, inputs: any, options?: any) => unknown) & { readonly op: OpDescriptor };

export interface PublicOp {
  readonly op: AnyOp;
  readonly package: string;
}

const PACKAGES = { norms, quant4, "delta-rule": deltaRule, nn, moe, mla };

function isOp(value: unknown): value is AnyOp {
  return typeof value === "function" && "op" in value;
}

/** Every public op of the packages, by name. */
export function publicOps(): Map<string, PublicOp> {
  const ops = new Map<string, PublicOp>();
  for (const [name, exports] of Object.entries(PACKAGES))
    for (const op of Object.values(exports).filter(isOp)) ops.set(op.op.name, { op, package: `@mlxts/${name}` });
  return ops;
}

export const opNames = (): string[] => [...publicOps().keys()];

export function unknownOp(command: string, name: string): MlxtsError {
  const text = `${command}: no op is called ${name}${similar(name, opNames())}; \`mlxts op --list\` names them all`;
  return new MlxtsError("KernelNotFound", text, { name, library: "mlxts" });
}
