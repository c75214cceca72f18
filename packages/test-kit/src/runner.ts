// The runner of vitest.config.ts. The conformance suites of the packages are test files by themselves: what a *.suite.ts
// exports as `suite` or `suites` is run on every device, and no file calls them by hand.
import type { Suite } from "@mlxts/core/testing";
import { TestRunner } from "vitest";
import { testSuite } from "./suite.ts";

interface SuiteModule {
  suite?: Suite;
  suites?: readonly Suite[];
}

export default class SuiteRunner extends TestRunner {
  override async importFile(...[path, source]: Parameters<TestRunner["importFile"]>): Promise<unknown> {
    const module = await super.importFile(path, source);
    if (source === "collect" && path.endsWith(".suite.ts")) {
      const { suite, suites = suite ? [suite] : [] } = module as SuiteModule;
      for (const each of suites) testSuite(each, { keep: true });
    }
    return module;
  }
}
