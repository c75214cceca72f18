import type { Suite } from "@mlxts/core/testing";
import { suites as beforeWeight } from "./before_weight.suite.ts";
import { suite as gatedRmsNorm } from "./gated_rms_norm.suite.ts";
import { suite as l2Norm } from "./l2_norm.suite.ts";
import { suite as rmsNorm } from "./rms_norm.suite.ts";

/** The conformance suites of this package's ops. */
export const suites: readonly Suite[] = [rmsNorm, gatedRmsNorm, l2Norm, ...beforeWeight];
