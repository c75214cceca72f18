// Which variables each scope of a template has, and with what they begin: jinja2 decides this before a template runs, so
// that a name that is set anywhere in a scope is a variable of that scope.
import { Fault } from "./faults.ts";
import type { Arguments, Expression, MacroParts, Statement, Target } from "./nodes.ts";

/** How a variable begins: with the value from the context, with that of the outer scope, unset, or given by the caller. */
export type Begin = "context" | "outer" | "unset" | "given";

export class Symbols {
  readonly begins: Map<string, Begin>;
  private readonly stores: Set<string>;
  readonly parent: Symbols | undefined;

  constructor(parent?: Symbols, begins = new Map<string, Begin>(), stores = new Set<string>()) {
    this.parent = parent;
    this.begins = begins;
    this.stores = stores;
  }

  private knows(name: string): boolean {
    for (let scope: Symbols | undefined = this; scope; scope = scope.parent) if (scope.begins.has(name)) return true;
    return false;
  }

  store(name: string): void {
    this.stores.add(name);
    if (!this.begins.has(name)) this.begins.set(name, this.parent?.knows(name) ? "outer" : "unset");
  }

  give(name: string): void {
    this.stores.add(name);
    this.begins.set(name, "given");
  }

  load(name: string): void {
    if (!this.knows(name)) this.begins.set(name, "context");
  }

  private copy(): Symbols {
    return new Symbols(this.parent, new Map(this.begins), new Set(this.stores));
  }

  /** Visits the branches of an `if`, of which one runs. */
  branches(visits: readonly ((symbols: Symbols) => void)[]): void {
    const all = visits.map((visit) => {
      const branch = this.copy();
      visit(branch);
      return branch;
    });
    const stored = new Set(all.flatMap((branch) => [...branch.stores]).filter((name) => !this.stores.has(name)));
    for (const branch of all) {
      for (const [name, begin] of branch.begins) this.begins.set(name, begin);
      for (const name of branch.stores) this.stores.add(name);
    }
    for (const name of stored) this.begins.set(name, this.parent?.knows(name) ? "outer" : "context");
  }
}

/** Visits the expressions within an expression. */
export function eachOperand(expression: Expression, visit: (expression: Expression) => void): void {
  switch (expression.type) {
    case "list":
    case "tuple":
    case "concat":
      for (const item of expression.items) visit(item);
      break;
    case "dict":
      for (const { key, value } of expression.entries) {
        visit(key);
        visit(value);
      }
      break;
    case "unary":
      visit(expression.operand);
      break;
    case "binary":
    case "logic":
      visit(expression.left);
      visit(expression.right);
      break;
    case "compare":
      visit(expression.first);
      for (const { operand } of expression.rest) visit(operand);
      break;
    case "conditional":
      visit(expression.test);
      visit(expression.chosen);
      if (expression.otherwise) visit(expression.otherwise);
      break;
    case "attribute":
      visit(expression.object);
      break;
    case "item":
      visit(expression.object);
      visit(expression.key);
      break;
    case "slice":
      visit(expression.object);
      for (const bound of expression.bounds) if (bound) visit(bound);
      break;
    case "call":
      visit(expression.callee);
      eachArgument(expression.args, visit);
      break;
    case "filter":
    case "test":
      if (expression.value) visit(expression.value);
      eachArgument(expression.args, visit);
  }
}

function eachArgument({ positional, keywords, list, dict }: Arguments, visit: (expression: Expression) => void): void {
  for (const value of positional) visit(value);
  for (const { value } of keywords) visit(value);
  if (list) visit(list);
  if (dict) visit(dict);
}

function loadAll(symbols: Symbols, expression: Expression | undefined): void {
  if (!expression) return;
  if (expression.type === "name") symbols.load(expression.name);
  else eachOperand(expression, (operand) => loadAll(symbols, operand));
}

function assign(symbols: Symbols, target: Target, given: boolean): void {
  if (target.type === "attributeTarget") symbols.load(target.name);
  else if (target.type === "tupleTarget") for (const item of target.items) assign(symbols, item, given);
  else if (given) symbols.give(target.name);
  else symbols.store(target.name);
}

/** What statements load and store in the scope that they stand in: not what they do in scopes of their own. */
export function scan(symbols: Symbols, statements: readonly Statement[]): void {
  for (const statement of statements)
    switch (statement.type) {
      case "print":
        loadAll(symbols, statement.value);
        break;
      case "set":
        loadAll(symbols, statement.value);
        assign(symbols, statement.target, false);
        break;
      case "setBlock":
        assign(symbols, statement.target, false);
        break;
      case "for":
        loadAll(symbols, statement.iterable);
        break;
      case "if":
        scanIf(symbols, statement.branches, statement.otherwise);
        break;
      case "macro":
        symbols.store(statement.name);
        break;
      case "callBlock":
        loadAll(symbols, statement.call);
        break;
      case "filterBlock":
        loadAll(symbols, statement.filter);
        break;
      case "with":
        for (const { value } of statement.assignments) loadAll(symbols, value);
    }
}

type Branches = readonly { readonly test: Expression; readonly body: readonly Statement[] }[];

function scanIf(symbols: Symbols, branches: Branches, otherwise: readonly Statement[]): void {
  const [first, ...rest] = branches;
  if (!first) return;
  loadAll(symbols, first.test);
  symbols.branches([
    (branch) => scan(branch, first.body),
    (branch) => {
      for (const { test, body } of rest) scanIf(branch, [{ test, body }], []);
    },
    (branch) => scan(branch, otherwise),
  ]);
}

export const scopeOf = (parent: Symbols | undefined, statements: readonly Statement[]): Symbols => {
  const symbols = new Symbols(parent);
  scan(symbols, statements);
  return symbols;
};

/** The scope of a loop's body or test, whose targets are given. */
export function loopScope(parent: Symbols, target: Target, body: readonly Statement[], test?: Expression): Symbols {
  const symbols = new Symbols(parent);
  if (!test) symbols.give("loop");
  assign(symbols, target, true);
  loadAll(symbols, test);
  scan(symbols, body);
  return symbols;
}

export function withScope(parent: Symbols, targets: readonly Target[], body: readonly Statement[]): Symbols {
  const symbols = new Symbols(parent);
  for (const target of targets) assign(symbols, target, true);
  scan(symbols, body);
  return symbols;
}

const SPECIAL = ["caller", "kwargs", "varargs"] as const;
export type Special = (typeof SPECIAL)[number];

/** The scope of a macro, and which of `caller`, `kwargs` and `varargs` it takes. */
export function macroScope(parent: Symbols, macro: MacroParts): { symbols: Symbols; special: ReadonlySet<Special> } {
  const symbols = new Symbols(parent);
  const names = macro.parameters.map(({ name }) => name);
  for (const name of names) symbols.give(name);
  for (const value of macro.defaults) loadAll(symbols, value);
  scan(symbols, macro.body);
  const undeclared = undeclaredAmong(macro.body, new Set<string>(SPECIAL));
  const special = new Set<Special>();
  for (const name of SPECIAL) {
    const at = names.indexOf(name);
    if (!undeclared.has(name)) continue;
    if (at < 0) {
      special.add(name);
      symbols.give(name);
    } else if (name === "caller" && at < names.length - macro.defaults.length)
      throw new Fault(
        "syntax",
        'When defining macros or call blocks the special "caller" argument must be omitted or be given a default.',
        macro.line,
      );
  }
  return { symbols, special };
}

/** Those of the names that statements load, scopes within them included, before they store them. */
function undeclaredAmong(statements: readonly Statement[], names: Set<string>): Set<string> {
  const found = new Set<string>();
  const load = (expression: Expression | undefined): void => {
    if (!expression) return;
    if (expression.type === "name") {
      if (names.has(expression.name)) found.add(expression.name);
    } else eachOperand(expression, load);
  };
  const store = (target: Target): void => {
    if (target.type === "tupleTarget") target.items.forEach(store);
    else if (target.type === "name") names.delete(target.name);
  };
  const visit = (each: readonly Statement[]): void => each.forEach(visitOne);
  const visitOne = (statement: Statement): void => {
    switch (statement.type) {
      case "print":
        load(statement.value);
        return;
      case "set":
        store(statement.target);
        load(statement.value);
        return;
      case "setBlock":
        store(statement.target);
        load(statement.filter);
        visit(statement.body);
        return;
      case "for":
        store(statement.target);
        load(statement.iterable);
        visit(statement.body);
        visit(statement.otherwise);
        load(statement.test);
        return;
      case "if":
        for (const { test, body } of statement.branches) {
          load(test);
          visit(body);
        }
        visit(statement.otherwise);
        return;
      case "macro":
      case "callBlock":
        if (statement.type === "callBlock") load(statement.call);
        statement.parameters.forEach(store);
        statement.defaults.forEach(load);
        visit(statement.body);
        return;
      case "with":
        for (const { target } of statement.assignments) store(target);
        for (const { value } of statement.assignments) load(value);
        visit(statement.body);
        return;
      case "filterBlock":
        visit(statement.body);
        load(statement.filter);
        return;
    }
  };
  visit(statements);
  return found;
}
