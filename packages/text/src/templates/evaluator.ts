// Runs the tree of a template.
import { getAttribute, getItem } from "./attributes.ts";
import type { Budget } from "./budget.ts";
import { Fault, typeFault, valueFault } from "./faults.ts";
import { FILTERS } from "./filters.ts";
import { checkAttribute, LoopContext } from "./natives.ts";
import type {
  Arguments,
  CallBlockNode,
  CallNode,
  Expression,
  FilterNode,
  ForNode,
  MacroNode,
  MacroParts,
  SetBlockNode,
  Statement,
  Target,
  WithNode,
} from "./nodes.ts";
import { negate } from "./numbers.ts";
import { binary, compare, iterate, listOf, slice, truth } from "./operators.ts";
import type { Runtime } from "./runtime.ts";
import { eachOperand, loopScope, macroScope, type Special, type Symbols, scopeOf, withScope } from "./symbols.ts";
import { testsBeside } from "./tests.ts";
import { textOf } from "./text_of.ts";
import {
  type Args,
  Callable,
  Dict,
  Float,
  Generator,
  isList,
  Markup,
  Namespace,
  Native,
  orElse,
  Range,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

export const TESTS = testsBeside(FILTERS);
const NO_ARGS: Args = { positional: [], keywords: new Map() };

/** Filters that jinja2 does not run before a template runs. */
const LATE_FILTERS: ReadonlySet<string> = new Set(["map", "select", "reject", "selectattr", "rejectattr", "random"]);

/** Whether jinja2 can write a value that it has computed before the template runs into the program that it makes. */
function isPlain(value: Value): boolean {
  if (isList(value)) return value.every(isPlain);
  if (value instanceof Tuple) return value.items.every(isPlain);
  if (value instanceof Dict) return [...value.entries()].every(([key, item]) => isPlain(key) && isPlain(item));
  return value === null || typeof value !== "object" || [Float, Range, Markup].some((type) => value instanceof type);
}

/** The variables of a scope that runs; undefined while they are not set. */
class Scope {
  readonly values = new Map<string, Value | undefined>();
  readonly symbols: Symbols;
  readonly parent: Scope | undefined;

  constructor(symbols: Symbols, parent: Scope | undefined) {
    this.symbols = symbols;
    this.parent = parent;
  }

  /** The scope of a variable; undefined for a name that no scope has. */
  find(name: string): Scope | undefined {
    for (let scope: Scope | undefined = this; scope; scope = scope.parent) if (scope.values.has(name)) return scope;
    return undefined;
  }
}

/** How a block of statements ends. */
type Ending = "end" | "break" | "continue";
type Output = string[];

/** A macro, or the body of a `{% call %}`. */
class Macro extends Native {
  readonly typeName = "Macro";
  readonly name: string | null;
  private readonly parameters: readonly string[];
  private readonly special: ReadonlySet<Special>;
  private readonly run: (given: ReadonlyMap<string, Value | undefined>) => string;

  constructor(
    name: string | null,
    parameters: readonly string[],
    special: ReadonlySet<Special>,
    run: (given: ReadonlyMap<string, Value | undefined>) => string,
  ) {
    super();
    this.name = name;
    this.parameters = parameters;
    this.special = special;
    this.run = run;
  }

  override repr(): string {
    return `<Macro ${this.name === null ? "anonymous" : `'${this.name}'`}>`;
  }

  attribute(name: string): Value | undefined {
    switch (name) {
      case "name":
        return this.name;
      case "arguments":
        return new Tuple(this.parameters);
      case "catch_kwargs":
        return this.special.has("kwargs");
      case "catch_varargs":
        return this.special.has("varargs");
      case "caller":
        return this.special.has("caller");
      default:
        return undefined;
    }
  }

  override call({ positional, keywords }: Args): Value {
    const { parameters, special } = this;
    const rest = new Map(keywords);
    const given = new Map<string, Value | undefined>();
    const take = (name: string) => {
      const value = rest.get(name);
      rest.delete(name);
      return value;
    };
    for (const [at, name] of parameters.entries())
      given.set(name, at < positional.length ? positional[at] : take(name));
    if (special.has("caller")) given.set("caller", take("caller") ?? new Undefined("No caller defined"));
    if (special.has("kwargs")) given.set("kwargs", Dict.from(rest));
    else if (rest.has("caller")) {
      throw typeFault(
        `macro '${this.name}' was invoked with two values for the special caller argument. This is most likely a bug.`,
      );
    } else if (rest.size > 0)
      throw typeFault(`macro '${this.name}' takes no keyword argument '${[...rest.keys()][0]}'`);
    if (special.has("varargs")) given.set("varargs", new Tuple(positional.slice(parameters.length)));
    else if (positional.length > parameters.length)
      throw typeFault(`macro '${this.name}' takes not more than ${parameters.length} argument(s)`);
    return this.run(given);
  }
}

export class Evaluator implements Runtime {
  readonly budget: Budget;
  private readonly context: Map<string, Value>;
  /** The scopes of statements, which are the same each time that they run. */
  private readonly scopes: Scopes;
  private inConstant = false;

  /** `context`: the variables of the template, and what every template has. */
  constructor(budget: Budget, context: Map<string, Value>, scopes: Scopes) {
    this.budget = budget;
    this.context = context;
    this.scopes = scopes;
  }

  render(statements: readonly Statement[], symbols: Symbols): string {
    const out: Output = [];
    this.block(statements, this.enter(symbols, undefined), out);
    return out.join("");
  }

  filter(name: string, value: Value, args: Args): Value {
    if (this.inConstant && LATE_FILTERS.has(name)) throw new Fault("unsupported", "no constant");
    const filter = FILTERS.get(name);
    if (!filter) throw new Fault("type", `No filter named '${name}'.`);
    this.budget.work(1);
    return filter(this, value, args);
  }

  test(name: string, value: Value, args: Args): boolean {
    const test = TESTS.get(name);
    if (!test) throw new Fault("type", `No test named '${name}'.`);
    this.budget.work(1);
    return test(this, value, args);
  }

  /** Begins a scope; `given` are the variables that its statement sets. */
  private enter(symbols: Symbols, parent: Scope | undefined, given?: ReadonlyMap<string, Value | undefined>): Scope {
    const scope = new Scope(symbols, parent);
    for (const [name, begin] of symbols.begins) {
      const value =
        begin === "context"
          ? this.context.get(name)
          : begin === "outer"
            ? parent?.find(name)?.values.get(name)
            : begin === "given"
              ? given?.get(name)
              : undefined;
      scope.values.set(name, value);
    }
    return scope;
  }

  private block(statements: readonly Statement[], scope: Scope, out: Output): Ending {
    for (const statement of statements) {
      this.budget.work(1);
      let ending: Ending;
      try {
        ending = this.statement(statement, scope, out);
      } catch (error) {
        if (error instanceof Fault) error.line ??= statement.line;
        throw error;
      }
      if (ending !== "end") return ending;
    }
    return "end";
  }

  private write(out: Output, text: string): void {
    this.budget.make(text.length);
    out.push(text);
  }

  private statement(statement: Statement, scope: Scope, out: Output): Ending {
    switch (statement.type) {
      case "data":
        this.write(out, statement.text);
        return "end";
      case "print":
        this.write(out, this.printed(statement.value, scope));
        return "end";
      case "set": {
        this.checkNamespaces(statement.target, scope);
        this.assign(statement.target, this.evaluate(statement.value, scope), scope);
        return "end";
      }
      case "if": {
        for (const { test, body } of statement.branches)
          if (truth(this.evaluate(test, scope))) return this.nested(body, scope, out);
        return this.nested(statement.otherwise, scope, out);
      }
      case "for":
        return this.forLoop(statement, scope, out);
      case "macro":
        this.assign({ type: "name", name: statement.name, line: statement.line }, this.macro(statement, scope), scope);
        return "end";
      case "callBlock":
        this.write(out, textOf(this.budget, this.callBlock(statement, scope)));
        return "end";
      case "setBlock":
        return this.setBlock(statement, scope);
      case "with":
        return this.withBlock(statement, scope, out);
      case "filterBlock": {
        const inner = this.enter(
          this.scopes.of(statement, () => scopeOf(scope.symbols, statement.body)),
          scope,
        );
        const text: Output = [];
        const ending = this.nested(statement.body, inner, text);
        if (ending === "end")
          this.write(out, textOf(this.budget, this.filtered(statement.filter, inner, text.join(""))));
        return ending;
      }
      case "break":
      case "continue":
        return statement.type;
    }
  }

  private printed(expression: Expression, scope: Scope): string {
    const constant = this.constantOf(expression, scope);
    return textOf(this.budget, constant === undefined ? this.evaluate(expression, scope) : constant);
  }

  /**
   * The value of an expression with slices that jinja2 computes before the template runs: there slices of what has none
   * are undefined, while they fail when it runs.
   */
  private constantOf(expression: Expression, scope: Scope): Value | undefined {
    if (this.inConstant || !this.scopes.hasSlice(expression)) return undefined;
    if (this.scopes.constants.has(expression)) return this.scopes.constants.get(expression);
    let value: Value | undefined;
    this.inConstant = true;
    try {
      value = this.evaluate(expression, scope);
    } catch (error) {
      if (!(error instanceof Fault) || error.kind === "limit") throw error;
    } finally {
      this.inConstant = false;
    }
    this.scopes.constants.set(expression, value);
    return value;
  }

  private nested(statements: readonly Statement[], scope: Scope, out: Output): Ending {
    this.budget.enter();
    const ending = this.block(statements, scope, out);
    this.budget.leave();
    return ending;
  }

  private setBlock(statement: SetBlockNode, scope: Scope): Ending {
    const inner = this.enter(
      this.scopes.of(statement, () => scopeOf(scope.symbols, statement.body)),
      scope,
    );
    const text: Output = [];
    const ending = this.nested(statement.body, inner, text);
    if (ending !== "end") return ending;
    this.checkNamespaces(statement.target, scope);
    const joined = text.join("");
    this.assign(statement.target, statement.filter ? this.filtered(statement.filter, inner, joined) : joined, scope);
    return "end";
  }

  private withBlock(statement: WithNode, scope: Scope, out: Output): Ending {
    const symbols = this.scopes.of(statement, () =>
      withScope(
        scope.symbols,
        statement.assignments.map(({ target }) => target),
        statement.body,
      ),
    );
    const inner = this.enter(symbols, scope);
    for (const { target, value } of statement.assignments) this.assign(target, this.evaluate(value, scope), inner);
    return this.nested(statement.body, inner, out);
  }

  /** Sets the variables of a target. */
  private assign(target: Target, value: Value, scope: Scope): void {
    if (target.type === "name") {
      scope.values.set(target.name, value);
      // Macros and scopes in other places find it there, too.
      if (!scope.parent) this.context.set(target.name, value);
      return;
    }
    if (target.type === "attributeTarget") {
      const namespace = this.variable(target.name, scope);
      checkAttribute(target.attribute);
      (namespace as Namespace).attributes.set(target.attribute, value);
      return;
    }
    const items = this.unpack(value, target.items.length);
    for (const [at, item] of target.items.entries()) this.assign(item, items[at] as Value, scope);
  }

  private checkNamespaces(target: Target, scope: Scope): void {
    if (target.type === "tupleTarget") for (const item of target.items) this.checkNamespaces(item, scope);
    else if (target.type === "attributeTarget" && !(this.variable(target.name, scope) instanceof Namespace))
      throw typeFault("cannot assign attribute on non-namespace object");
  }

  private unpack(value: Value, count: number): readonly Value[] {
    const items = iterate(this.budget, value);
    const list: Value[] = [];
    for (let next = items.next(); !next.done; next = items.next()) {
      if (list.length === count) throw valueFault(`too many values to unpack (expected ${count})`);
      list.push(next.value);
    }
    if (list.length < count) throw valueFault(`not enough values to unpack (expected ${count}, got ${list.length})`);
    return list;
  }

  private forLoop(loop: ForNode, scope: Scope, out: Output): Ending {
    const items = this.evaluate(loop.iterable, scope);
    if (!loop.recursive) {
      this.loop(loop, scope, out, items, 0, undefined);
      return "end";
    }
    const render = (inner: Value, depth: number): string => {
      const text: Output = [];
      this.budget.enter();
      this.loop(loop, scope, text, inner, depth, render);
      this.budget.leave();
      return text.join("");
    };
    this.write(out, render(items, 0));
    return "end";
  }

  /** The items of a loop that pass its test. */
  private *passing(loop: ForNode, test: Expression, scope: Scope, items: Value): Iterator<Value> {
    const symbols = this.scopes.of(test, () => loopScope(scope.symbols, loop.target, [], test));
    const iterator = iterate(this.budget, items);
    // The scope of the test begins once.
    const inner = this.enter(symbols, scope);
    for (let next = iterator.next(); !next.done; next = iterator.next()) {
      this.budget.work(1);
      this.assign(loop.target, next.value, inner);
      if (truth(this.evaluate(test, inner))) yield next.value;
    }
  }

  private loop(
    loop: ForNode,
    scope: Scope,
    out: Output,
    items: Value,
    depth: number,
    recurse: ((items: Value, depth: number) => Value) | undefined,
  ): void {
    const { budget } = this;
    const passing = loop.test ? new Generator(this.passing(loop, loop.test, scope, items)) : items;
    const context = new LoopContext(budget, passing, iterate(budget, passing), depth, recurse);
    const symbols = this.scopes.of(loop, () => loopScope(scope.symbols, loop.target, loop.body));
    // As in jinja2, an iteration that `break` or `continue` ends counts as none.
    let completed = false;
    for (let item = context.next(); item !== undefined; item = context.next()) {
      // A turn of a loop costs about as much as evaluating this many nodes.
      budget.work(8);
      const given = new Map<string, Value>([["loop", context]]);
      this.take(loop.target, item, given);
      const ending = this.nested(loop.body, this.enter(symbols, scope, given), out);
      if (ending === "break") break;
      if (ending === "end") completed = true;
    }
    if (completed || loop.otherwise.length === 0) return;
    const inner = this.enter(
      this.scopes.of(loop.otherwise, () => scopeOf(scope.symbols, loop.otherwise)),
      scope,
    );
    this.nested(loop.otherwise, inner, out);
  }

  /** The variables of a loop's target for an item. */
  private take(target: Target, value: Value, given: Map<string, Value>): void {
    if (target.type === "name") given.set(target.name, value);
    else if (target.type === "tupleTarget") {
      const items = this.unpack(value, target.items.length);
      for (const [at, item] of target.items.entries()) this.take(item, items[at] as Value, given);
    }
  }

  private macro(macro: MacroNode | CallBlockNode, scope: Scope): Macro {
    const { symbols, special } = this.scopes.macro(macro, scope.symbols);
    const names = macro.parameters.map(({ name }) => name);
    return new Macro(macro.type === "macro" ? macro.name : null, names, special, (given) => {
      const { budget } = this;
      budget.enter();
      budget.work(1);
      const inner = this.enter(symbols, scope, given);
      this.defaults(macro, inner);
      const text: Output = [];
      this.block(macro.body, inner, text);
      budget.leave();
      return budget.made(text.join(""));
    });
  }

  /** Gives parameters that the caller left out their defaults. */
  private defaults({ parameters, defaults }: MacroParts, scope: Scope): void {
    for (const [at, { name }] of parameters.entries()) {
      if (scope.values.get(name) !== undefined) continue;
      const value = defaults[at - (parameters.length - defaults.length)];
      scope.values.set(
        name,
        value ? this.evaluate(value, scope) : new Undefined(`parameter '${name}' was not provided`),
      );
    }
  }

  private callBlock(block: CallBlockNode, scope: Scope): Value {
    const caller = this.macro(block, scope);
    if (!block.call) return caller.call(NO_ARGS);
    return this.call(block.call, scope, caller);
  }

  private variable(name: string, scope: Scope): Value {
    const at = scope.find(name);
    if (!at) throw new Fault("unsupported", `the variable ${name} is read where jinja2 fails`);
    return orElse(at.values.get(name), () => new Undefined(`'${name}' is undefined`));
  }

  private evaluate(expression: Expression, scope: Scope): Value {
    const { budget } = this;
    budget.work(1);
    switch (expression.type) {
      case "constant":
        return expression.value;
      case "name":
        if (this.inConstant) throw new Fault("unsupported", "no constant");
        return this.variable(expression.name, scope);
    }
    const constant = this.constantOf(expression, scope);
    if (constant !== undefined && isPlain(constant)) return constant;
    budget.enter();
    const value = this.compute(expression, scope);
    budget.leave();
    return value;
  }

  private compute(expression: Exclude<Expression, { type: "constant" | "name" }>, scope: Scope): Value {
    const { budget } = this;
    switch (expression.type) {
      case "attribute":
        return getAttribute(budget, this.evaluate(expression.object, scope), expression.name);
      case "item": {
        const object = this.evaluate(expression.object, scope);
        return getItem(budget, object, this.evaluate(expression.key, scope));
      }
      case "call":
        return this.call(expression, scope);
      case "filter":
        return this.filtered(expression, scope);
      case "test": {
        const value = this.evaluate(expression.value as Expression, scope);
        return this.test(expression.name, value, this.args(expression.args, scope));
      }
      case "compare":
        return this.compare(expression, scope);
      case "logic": {
        const left = this.evaluate(expression.left, scope);
        return truth(left) === (expression.operator === "and") ? this.evaluate(expression.right, scope) : left;
      }
      case "conditional": {
        const { test, chosen, otherwise, line } = expression;
        if (truth(this.evaluate(test, scope))) return this.evaluate(chosen, scope);
        return otherwise
          ? this.evaluate(otherwise, scope)
          : new Undefined(
              `the inline if-expression on line ${line} evaluated to false and no else section was defined.`,
            );
      }
      case "unary": {
        const operand = this.evaluate(expression.operand, scope);
        if (expression.operator === "not") return !truth(operand);
        if (operand instanceof Undefined) throw operand.fault();
        return negate(operand, expression.operator);
      }
      case "binary": {
        const left = this.evaluate(expression.left, scope);
        return binary(budget, expression.operator, left, this.evaluate(expression.right, scope));
      }
      case "concat": {
        const parts = expression.items.map((item) => textOf(budget, this.evaluate(item, scope)));
        budget.make(parts.reduce((sum, part) => sum + part.length, 0));
        return parts.join("");
      }
      case "list":
      case "tuple": {
        const items = expression.items.map((item) => this.evaluate(item, scope));
        budget.makeItems(items.length);
        return expression.type === "list" ? items : new Tuple(items);
      }
      case "dict": {
        const dict = new Dict();
        budget.makeItems(2 * expression.entries.length);
        for (const { key, value } of expression.entries) {
          const found = this.evaluate(key, scope);
          dict.set(found, this.evaluate(value, scope));
        }
        return dict;
      }
      case "slice": {
        const object = this.evaluate(expression.object, scope);
        const [from = null, to = null, step = null] = expression.bounds.map((bound) =>
          bound ? this.evaluate(bound, scope) : null,
        );
        try {
          return slice(budget, object, from, to, step);
        } catch (error) {
          if (!(this.inConstant && error instanceof Fault && error.kind === "type")) throw error;
          return new Undefined(`${typeName(object)} object has no element slice(…)`);
        }
      }
    }
  }

  private compare(expression: Extract<Expression, { type: "compare" }>, scope: Scope): Value {
    let left = this.evaluate(expression.first, scope);
    let result = true;
    for (const { operator, operand } of expression.rest) {
      const right = this.evaluate(operand, scope);
      result = compare(this.budget, operator, left, right);
      if (!result) return false;
      left = right;
    }
    return result;
  }

  private filtered(filter: FilterNode, scope: Scope, start?: string): Value {
    const value = filter.value
      ? filter.value.type === "filter"
        ? this.filtered(filter.value, scope, start)
        : this.evaluate(filter.value, scope)
      : (start as string);
    return this.filter(filter.name, value, this.args(filter.args, scope));
  }

  private call(node: CallNode, scope: Scope, caller?: Macro): Value {
    if (this.inConstant) throw new Fault("unsupported", "no constant");
    const callee = this.evaluate(node.callee, scope);
    const given = this.args(node.args, scope, caller);
    this.budget.work(1);
    if (callee instanceof Callable || callee instanceof Native) return callee.call(given);
    if (callee instanceof Undefined) throw callee.fault();
    throw typeFault(`'${typeName(callee)}' object is not callable`);
  }

  private args({ positional, keywords, list, dict }: Arguments, scope: Scope, caller?: Macro): Args {
    if (positional.length === 0 && keywords.length === 0 && !list && !dict && !caller) return NO_ARGS;
    const values = positional.map((value) => this.evaluate(value, scope));
    const named = new Map<string, Value>();
    for (const { name, value } of keywords) named.set(name, this.evaluate(value, scope));
    if (caller) named.set("caller", caller);
    if (list) values.push(...listOf(this.budget, this.evaluate(list, scope)));
    if (dict) {
      const more = this.evaluate(dict, scope);
      if (!(more instanceof Dict)) throw typeFault("argument after ** must be a mapping");
      for (const [name, value] of more.entries()) {
        if (typeof name !== "string") throw typeFault("keywords must be strings");
        if (named.has(name)) throw typeFault(`got multiple values for keyword argument '${name}'`);
        named.set(name, value);
      }
    }
    return { positional: values, keywords: named };
  }
}

/** The symbols of statements with scopes of their own, found when they first run. */
export class Scopes {
  private readonly symbols = new Map<object, Symbols>();
  private readonly slices = new Map<Expression, boolean>();
  /** What expressions with slices are before the template runs; undefined where variables decide. */
  readonly constants = new Map<Expression, Value | undefined>();
  private readonly macros = new Map<object, { symbols: Symbols; special: ReadonlySet<Special> }>();

  of(statement: object, make: () => Symbols): Symbols {
    let symbols = this.symbols.get(statement);
    if (!symbols) {
      symbols = make();
      this.symbols.set(statement, symbols);
    }
    return symbols;
  }

  hasSlice(expression: Expression): boolean {
    let found = this.slices.get(expression);
    if (found === undefined) {
      found = expression.type === "slice";
      eachOperand(expression, (operand) => {
        found ||= this.hasSlice(operand);
      });
      this.slices.set(expression, found);
    }
    return found;
  }

  macro(macro: MacroParts, parent: Symbols): { symbols: Symbols; special: ReadonlySet<Special> } {
    let found = this.macros.get(macro);
    if (!found) {
      found = macroScope(parent, macro);
      this.macros.set(macro, found);
    }
    return found;
  }
}
