import { defineLibrary } from "@mlxts/core";

export const normsLibrary = defineLibrary("norms", import.meta.url);
