import { Budget, type Limits } from "./budget.ts";
import { check } from "./check.ts";
import { loopsOverContent } from "./content_parts.ts";
import { templateValue } from "./convert.ts";
import { Evaluator, Scopes, TESTS } from "./evaluator.ts";
import { FILTERS } from "./filters.ts";
import { globalsOf } from "./natives.ts";
import type { Statement } from "./nodes.ts";
import { parse } from "./parser.ts";
import { type Symbols, scopeOf } from "./symbols.ts";
import type { Value } from "./values.ts";

/** A chat template as jinja2 renders it in transformers' environment. */
export class Template {
  /** Whether it has a loop over the parts of a message's content. */
  readonly takesParts: boolean;
  private readonly statements: readonly Statement[];
  private readonly symbols: Symbols;
  private readonly scopes = new Scopes();

  /** @throws Fault for what jinja2 does not compile, or is not supported */
  constructor(source: string) {
    this.statements = parse(source);
    check(this.statements, FILTERS, TESTS);
    this.takesParts = loopsOverContent(this.statements);
    this.symbols = scopeOf(undefined, this.statements);
  }

  /**
   * Renders the template with variables, which are values as in JSON, and Maps. `now`: the time for `strftime_now`.
   * @throws Fault where jinja2 fails, for what is not supported, and at a limit
   */
  render(variables: Readonly<Record<string, unknown>>, limits: Limits, now = () => new Date()): string {
    const budget = new Budget(limits);
    const context = new Map<string, Value>(globalsOf(budget, now));
    for (const [name, variable] of Object.entries(variables)) {
      const value = templateValue(budget, variable);
      if (value !== undefined) context.set(name, value);
    }
    return new Evaluator(budget, context, this.scopes).render(this.statements, this.symbols);
  }
}
