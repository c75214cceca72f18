import { defineLibrary } from "@mlxts/core";

export const deltaRuleLibrary = defineLibrary("delta-rule", import.meta.url);
