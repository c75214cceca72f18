import { defineLibrary } from "@mlxts/core";

export const quant4Library = defineLibrary("quant4", import.meta.url);
