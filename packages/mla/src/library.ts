import { defineLibrary } from "@mlxts/core";

export const mlaLibrary = defineLibrary("mla", import.meta.url);
