import type { Suite } from "@mlxts/core/testing";
import { suites as elementwise } from "./elementwise.suite.ts";
import { suite as kvCacheAppend } from "./kv_cache_append.suite.ts";
import { suite as matmul } from "./matmul.suite.ts";
import { suite as rope } from "./rope.suite.ts";
import { suites as rows } from "./rows.suite.ts";
import { suite as sample } from "./sample.suite.ts";
import { suite as sdpa } from "./sdpa.suite.ts";

/** The conformance suites of this package's ops. */
export const suites: readonly Suite[] = [matmul, ...rows, rope, kvCacheAppend, sdpa, ...elementwise, sample];
