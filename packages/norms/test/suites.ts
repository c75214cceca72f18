import type { DeclaredKernel, Suite } from "@mlxts/core/testing";
import { gatedRmsNormKernel } from "../src/gated_rms_norm.ts";
import { l2NormKernel } from "../src/l2_norm.ts";
import { rmsNormKernel } from "../src/rms_norm.ts";
import { suites as beforeWeight } from "./before_weight.suite.ts";
import { suite as gatedRmsNorm } from "./gated_rms_norm.suite.ts";
import { suite as l2Norm } from "./l2_norm.suite.ts";
import { suite as rmsNorm } from "./rms_norm.suite.ts";

/** The conformance suites of this package's ops. */
export const suites: readonly Suite[] = [rmsNorm, gatedRmsNorm, l2Norm, ...beforeWeight];

/** Every kernel that this package declares. */
export const kernels: readonly DeclaredKernel[] = [gatedRmsNormKernel, l2NormKernel, rmsNormKernel];
