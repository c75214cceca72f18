import { defineLibrary } from "@mlxts/core";

export const nnLibrary = defineLibrary("nn", import.meta.url);
