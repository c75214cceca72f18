import { defineLibrary } from "@mlxts/core";

export const moeLibrary = defineLibrary("moe", import.meta.url);
