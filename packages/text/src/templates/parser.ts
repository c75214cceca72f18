// Parses templates by the grammar of jinja2's parser, with the tags of transformers' environment.
import { Fault } from "./faults.ts";
import { type Token, type TokenType, tokenize } from "./lexer.ts";
import type {
  Arguments,
  BinaryOperator,
  CallNode,
  Comparison,
  Expression,
  FilterNode,
  MacroParts,
  NameNode,
  Statement,
  Target,
} from "./nodes.ts";
import { parseNumber } from "./numbers.ts";

/** Blocks and brackets within each other; jinja2 itself has a limit of about 70. */
const MAX_NESTING = 100;
const NO_ARGUMENTS: Arguments = { positional: [], keywords: [], list: undefined, dict: undefined };
const COMPARISONS: ReadonlySet<string> = new Set(["==", "!=", "<", "<=", ">", ">="]);
const REFUSED_TAGS: ReadonlySet<string> = new Set(["block", "extends", "include", "import", "from", "autoescape"]);
const CONSTANTS: ReadonlyMap<string, boolean | null> = new Map([
  ["true", true],
  ["True", true],
  ["false", false],
  ["False", false],
  ["none", null],
  ["None", null],
]);

export function parse(template: string): Statement[] {
  return new Parser(tokenize(template)).template();
}

class Parser {
  private readonly tokens: readonly Token[];
  private at = 0;
  private nesting = 0;
  /** The tags that are open, for messages. */
  private readonly open: string[] = [];

  constructor(tokens: readonly Token[]) {
    this.tokens = tokens;
  }

  private get current(): Token {
    return this.tokens[this.at] as Token;
  }

  private next(): Token {
    const token = this.current;
    if (token.type !== "eof") this.at++;
    return token;
  }

  private fail(message: string, line = this.current.line): never {
    throw new Fault("syntax", message, line);
  }

  private is(type: TokenType, value?: string, token = this.current): boolean {
    return token.type === type && (value === undefined || token.value === value);
  }
  private isOp(value: string): boolean {
    return this.is("op", value);
  }
  private isName(value: string): boolean {
    return this.is("name", value);
  }
  private skipOp(value: string): boolean {
    if (!this.isOp(value)) return false;
    this.at++;
    return true;
  }
  private skipName(value: string): boolean {
    if (!this.isName(value)) return false;
    this.at++;
    return true;
  }

  private expect(type: TokenType, value?: string): Token {
    if (this.is(type, value)) return this.next();
    const wanted = value ?? { end: "%}", printEnd: "}}", name: "a name" }[type as string] ?? type;
    return this.fail(`expected ${wanted}, got ${this.describe()}`);
  }

  private describe({ type, value } = this.current): string {
    const names: Partial<Record<TokenType, string>> = {
      eof: "the end of the template",
      end: "%}",
      printEnd: "}}",
      begin: "{%",
      print: "{{",
      data: "text",
    };
    return names[type] ?? (type === "text" ? JSON.stringify(value) : `'${value}'`);
  }

  private nested<T>(parse: () => T): T {
    if (++this.nesting > MAX_NESTING) throw new Fault("limit", "nests too deeply", this.current.line);
    const result = parse();
    this.nesting--;
    return result;
  }

  template(): Statement[] {
    return this.statements([]);
  }

  /** Statements up to one of the tags of `ends`, which is then the current token, or up to the end of the template. */
  private statements(ends: readonly string[]): Statement[] {
    const body: Statement[] = [];
    for (;;) {
      const token = this.next();
      const { line } = token;
      if (token.type === "eof") {
        if (ends.length === 0) return body;
        return this.fail(`Unexpected end of template. Looking for ${ends.join(" or ")} of {% ${this.open.at(-1)} %}`);
      }
      if (token.type === "data") body.push({ type: "data", text: token.value, line });
      else if (token.type === "print") {
        body.push({ type: "print", value: this.tuple(), line });
        this.expect("printEnd");
      } else {
        if (this.current.type === "name" && ends.includes(this.current.value)) return body;
        body.push(...this.nested(() => this.statement()));
        this.expect("end");
      }
    }
  }

  /** The body of a tag, up to one of `ends`, whose name is taken. */
  private body(tag: string, ...ends: string[]): { body: Statement[]; end: string } {
    this.skipOp(":");
    this.expect("end");
    this.open.push(tag);
    const body = this.statements(ends);
    this.open.pop();
    return { body, end: this.next().value };
  }

  private statement(): Statement[] {
    const tag = this.current;
    if (tag.type !== "name") this.fail("tag name expected");
    const { value: name, line } = tag;
    if (REFUSED_TAGS.has(name)) throw new Fault("unsupported", `the tag {% ${name} %} is not supported`, line);
    this.at++;
    switch (name) {
      case "set":
        return [this.set(line)];
      case "for":
        return [this.forLoop(line)];
      case "if":
        return [this.ifBlock(line)];
      case "macro": {
        const macro = this.expect("name").value;
        const { parameters, defaults } = this.signature();
        return [{ type: "macro", name: macro, parameters, defaults, body: this.body(name, "endmacro").body, line }];
      }
      case "call":
        return [this.callBlock(line)];
      case "generation":
        return [
          {
            type: "callBlock",
            call: undefined,
            parameters: [],
            defaults: [],
            body: this.body(name, "endgeneration").body,
            line,
          },
        ];
      case "filter": {
        const filter = this.filters(undefined, true) as FilterNode;
        return [{ type: "filterBlock", filter, body: this.body(name, "endfilter").body, line }];
      }
      case "with":
        return [this.withBlock(line)];
      case "print":
        return this.print(line);
      case "break":
      case "continue":
        return [{ type: name, line }];
      default:
        return this.fail(
          `Encountered unknown tag '${name}'.${this.open.length > 0 ? ` The innermost tag that is open is {% ${this.open.at(-1)} %}` : ""}`,
          line,
        );
    }
  }

  private print(line: number): Statement[] {
    const printed: Statement[] = [];
    while (!this.is("end")) {
      if (printed.length > 0) this.expect("op", ",");
      printed.push({ type: "print", value: this.expression(), line });
    }
    return printed;
  }

  private set(line: number): Statement {
    const target = this.target(true);
    if (this.skipOp("=")) return { type: "set", target, value: this.tuple(), line };
    const filter = this.filters(undefined, false) as FilterNode | undefined;
    return { type: "setBlock", target, filter, body: this.body("set", "endset").body, line };
  }

  private forLoop(line: number): Statement {
    const target = this.target(false, "in");
    this.expect("name", "in");
    const iterable = this.tuple({ conditional: false, end: "recursive" });
    const test = this.skipName("if") ? this.expression() : undefined;
    const recursive = this.skipName("recursive");
    const { body, end } = this.body("for", "endfor", "else");
    const otherwise = end === "else" ? this.body("for", "endfor").body : [];
    return { type: "for", target, iterable, test, body, otherwise, recursive, line };
  }

  private ifBlock(line: number): Statement {
    const branches: { test: Expression; body: Statement[] }[] = [];
    for (;;) {
      const test = this.tuple({ conditional: false });
      const { body, end } = this.body("if", "elif", "else", "endif");
      branches.push({ test, body });
      if (end === "elif") continue;
      return { type: "if", branches, otherwise: end === "else" ? this.body("if", "endif").body : [], line };
    }
  }

  private withBlock(line: number): Statement {
    const assignments: { target: Target; value: Expression }[] = [];
    while (!this.is("end")) {
      if (assignments.length > 0) this.expect("op", ",");
      const target = this.target(false);
      this.expect("op", "=");
      assignments.push({ target, value: this.expression() });
    }
    return { type: "with", assignments, body: this.body("with", "endwith").body, line };
  }

  private signature(): Pick<MacroParts, "parameters" | "defaults"> {
    const parameters: NameNode[] = [];
    const defaults: Expression[] = [];
    this.expect("op", "(");
    while (!this.isOp(")")) {
      if (parameters.length > 0) this.expect("op", ",");
      const { value: name, line } = this.expect("name");
      this.checkTarget(name, line);
      if (this.skipOp("=")) defaults.push(this.expression());
      else if (defaults.length > 0) this.fail("non-default argument follows default argument");
      parameters.push({ type: "name", name, line });
    }
    this.next();
    return { parameters, defaults };
  }

  private callBlock(line: number): Statement {
    const signature = this.isOp("(") ? this.signature() : { parameters: [], defaults: [] };
    const call = this.expression();
    if (call.type !== "call") return this.fail("expected call", line);
    return { type: "callBlock", call, ...signature, body: this.body("call", "endcall").body, line };
  }

  private checkTarget(name: string, line: number): void {
    if (CONSTANTS.has(name)) this.fail(`can't assign to '${name}'`, line);
  }

  /** What is assigned: a name, several, or, with `namespaces`, an attribute of a namespace. */
  private target(namespaces: boolean, end?: string): Target {
    const { line } = this.current;
    const items: Target[] = [];
    let isTuple = false;
    for (;;) {
      if (items.length > 0) this.expect("op", ",");
      if (this.is("printEnd") || this.is("end") || this.isOp(")") || (end !== undefined && this.isName(end))) break;
      items.push(this.simpleTarget(namespaces));
      if (!this.isOp(",")) break;
      isTuple = true;
    }
    if (isTuple) return { type: "tupleTarget", items, line };
    return items[0] ?? this.fail(`Expected an expression, got ${this.describe()}`);
  }

  private simpleTarget(namespaces: boolean): Target {
    const { line } = this.current;
    if (this.skipOp("(")) {
      // In brackets jinja2 reads expressions, of which names and tuples of names can be assigned.
      const inner = this.tuple({ parenthesized: true });
      this.expect("op", ")");
      return this.asTarget(inner);
    }
    if (!this.is("name")) this.fail(`can't assign to ${this.describe()}`);
    const name = this.next().value;
    if (namespaces && this.isOp(".") && !CONSTANTS.has(name)) {
      this.next();
      return { type: "attributeTarget", name, attribute: this.expect("name").value, line };
    }
    this.checkTarget(name, line);
    return { type: "name", name, line };
  }

  private asTarget(expression: Expression): Target {
    if (expression.type === "name") return expression;
    if (expression.type === "tuple")
      return { type: "tupleTarget", items: expression.items.map((item) => this.asTarget(item)), line: expression.line };
    return this.fail(`can't assign to '${expression.type}'`, expression.line);
  }

  /** An expression, or a tuple of several. */
  private tuple(options: { conditional?: boolean; end?: string; parenthesized?: boolean } = {}): Expression {
    const { conditional = true, end, parenthesized = false } = options;
    const { line } = this.current;
    const items: Expression[] = [];
    let isTuple = false;
    for (;;) {
      if (items.length > 0) this.expect("op", ",");
      if (this.is("printEnd") || this.is("end") || this.isOp(")") || (end !== undefined && this.isName(end))) break;
      items.push(conditional ? this.expression() : this.or());
      if (!this.isOp(",")) break;
      isTuple = true;
    }
    if (!isTuple) {
      if (items[0]) return items[0];
      if (!parenthesized) this.fail(`Expected an expression, got ${this.describe()}`);
    }
    return { type: "tuple", items, line };
  }

  private expression(): Expression {
    return this.nested(() => this.conditional());
  }

  private conditional(): Expression {
    let { line } = this.current;
    let value = this.or();
    while (this.skipName("if")) {
      const test = this.or();
      const otherwise = this.skipName("else") ? this.nested(() => this.conditional()) : undefined;
      value = { type: "conditional", test, chosen: value, otherwise, line };
      line = this.current.line;
    }
    return value;
  }

  private or(): Expression {
    let left = this.and();
    while (this.isName("or")) {
      const { line } = this.next();
      left = { type: "logic", operator: "or", left, right: this.and(), line };
    }
    return left;
  }

  private and(): Expression {
    let left = this.not();
    while (this.isName("and")) {
      const { line } = this.next();
      left = { type: "logic", operator: "and", left, right: this.not(), line };
    }
    return left;
  }

  private not(): Expression {
    if (!this.isName("not")) return this.compare();
    const { line } = this.next();
    return { type: "unary", operator: "not", operand: this.nested(() => this.not()), line };
  }

  private compare(): Expression {
    const { line } = this.current;
    const first = this.sum();
    const rest: { operator: Comparison; operand: Expression }[] = [];
    for (;;) {
      const { type, value } = this.current;
      if (type === "op" && COMPARISONS.has(value)) {
        this.next();
        rest.push({ operator: value as Comparison, operand: this.sum() });
      } else if (this.skipName("in")) rest.push({ operator: "in", operand: this.sum() });
      else if (this.isName("not") && this.is("name", "in", this.tokens[this.at + 1])) {
        this.at += 2;
        rest.push({ operator: "not in", operand: this.sum() });
      } else return rest.length === 0 ? first : { type: "compare", first, rest, line };
    }
  }

  /** Operands with operators of one rank between them. */
  private binary(operators: readonly BinaryOperator[], operand: () => Expression): Expression {
    let left = operand();
    while (this.is("op") && (operators as readonly string[]).includes(this.current.value)) {
      const { value, line } = this.next();
      left = { type: "binary", operator: value as BinaryOperator, left, right: operand(), line };
    }
    return left;
  }

  private sum(): Expression {
    return this.binary(["+", "-"], () => this.concat());
  }

  private concat(): Expression {
    const { line } = this.current;
    const items = [this.product()];
    while (this.skipOp("~")) items.push(this.product());
    return items.length === 1 ? (items[0] as Expression) : { type: "concat", items, line };
  }

  private product(): Expression {
    return this.binary(["*", "/", "//", "%"], () => this.power());
  }

  private power(): Expression {
    return this.binary(["**"], () => this.unary(true));
  }

  private unary(withFilters: boolean): Expression {
    const { line } = this.current;
    let value: Expression;
    if (this.isOp("-") || this.isOp("+")) {
      const operator = this.next().value as "-" | "+";
      value = { type: "unary", operator, operand: this.nested(() => this.unary(false)), line };
    } else value = this.primary();
    value = this.postfix(value);
    return withFilters ? this.filtered(value) : value;
  }

  private primary(): Expression {
    const token = this.current;
    const { type, value, line } = token;
    switch (type) {
      case "name": {
        this.next();
        const constant = CONSTANTS.get(value);
        return constant === undefined
          ? { type: "name", name: value, line }
          : { type: "constant", value: constant, line };
      }
      case "text": {
        let text = "";
        while (this.is("text")) text += this.next().value;
        return { type: "constant", value: text, line };
      }
      case "number":
        this.next();
        return { type: "constant", value: parseNumber(value), line };
      case "op":
        if (value === "(") return this.nested(() => this.parenthesized());
        if (value === "[") return this.nested(() => this.list());
        if (value === "{") return this.nested(() => this.dict());
    }
    return this.fail(`unexpected ${this.describe()}`);
  }

  private parenthesized(): Expression {
    this.next();
    const value = this.tuple({ parenthesized: true });
    this.expect("op", ")");
    return value;
  }

  private list(): Expression {
    const { line } = this.next();
    const items: Expression[] = [];
    while (!this.isOp("]")) {
      if (items.length > 0) this.expect("op", ",");
      if (this.isOp("]")) break;
      items.push(this.expression());
    }
    this.expect("op", "]");
    return { type: "list", items, line };
  }

  private dict(): Expression {
    const { line } = this.next();
    const entries: { key: Expression; value: Expression }[] = [];
    while (!this.isOp("}")) {
      if (entries.length > 0) this.expect("op", ",");
      if (this.isOp("}")) break;
      const key = this.expression();
      this.expect("op", ":");
      entries.push({ key, value: this.expression() });
    }
    this.expect("op", "}");
    return { type: "dict", entries, line };
  }

  private postfix(start: Expression): Expression {
    let value = start;
    for (;;) {
      const { line } = this.current;
      if (this.isOp(".")) {
        this.next();
        const token = this.next();
        if (token.type === "name") value = { type: "attribute", object: value, name: token.value, line };
        else if (token.type === "number" && /^(0[box])?[\da-f]+$/i.test(token.value))
          value = {
            type: "item",
            object: value,
            key: { type: "constant", value: parseNumber(token.value), line },
            line,
          };
        else this.fail("expected name or number", token.line);
      } else if (this.isOp("[")) value = this.subscript(value);
      else if (this.isOp("(")) value = this.call(value);
      else return value;
    }
  }

  private call(callee: Expression): CallNode {
    const { line } = this.current;
    return { type: "call", callee, args: this.args(), line };
  }

  /** `[key]`, `[a, b]` or `[from:to:step]` */
  private subscript(object: Expression): Expression {
    const { line } = this.next();
    const keys: Expression[] = [];
    let bounds: (Expression | undefined)[] | undefined;
    while (!this.isOp("]")) {
      if (keys.length > 0 || bounds) this.expect("op", ",");
      const key = this.isOp(":") ? undefined : this.expression();
      if (this.isOp(":")) {
        if (keys.length > 0 || bounds)
          throw new Fault("unsupported", "a slice among several keys is not supported", line);
        bounds = this.bounds(key);
      } else {
        if (bounds) throw new Fault("unsupported", "a slice among several keys is not supported", line);
        keys.push(key as Expression);
      }
    }
    this.expect("op", "]");
    if (bounds) return { type: "slice", object, bounds, line };
    const key: Expression = keys.length === 1 ? (keys[0] as Expression) : { type: "tuple", items: keys, line };
    return { type: "item", object, key, line };
  }

  /** The bounds of a slice from its first colon on. */
  private bounds(from: Expression | undefined): (Expression | undefined)[] {
    const bounds = [from];
    while (bounds.length < 3 && this.skipOp(":"))
      bounds.push(this.isOp(":") || this.isOp("]") || this.isOp(",") ? undefined : this.expression());
    return bounds;
  }

  private args(): Arguments {
    const { line } = this.expect("op", "(");
    const positional: Expression[] = [];
    const keywords: { name: string; value: Expression }[] = [];
    let list: Expression | undefined;
    let dict: Expression | undefined;
    const ensure = (valid: boolean) => valid || this.fail("invalid syntax for function call expression", line);
    let isFirst = true;
    while (!this.isOp(")")) {
      if (!isFirst) {
        this.expect("op", ",");
        if (this.isOp(")")) break;
      }
      isFirst = false;
      if (this.skipOp("*")) {
        ensure(!list && !dict);
        list = this.expression();
      } else if (this.skipOp("**")) {
        ensure(!dict);
        dict = this.expression();
      } else if (this.is("name") && this.is("op", "=", this.tokens[this.at + 1])) {
        ensure(!dict);
        const name = this.next().value;
        this.next();
        if (keywords.some((other) => other.name === name)) this.fail(`keyword argument repeated: ${name}`, line);
        keywords.push({ name, value: this.expression() });
      } else {
        ensure(!list && !dict && keywords.length === 0);
        positional.push(this.expression());
      }
    }
    this.expect("op", ")");
    return { positional, keywords, list, dict };
  }

  private filtered(start: Expression): Expression {
    let value = start;
    for (;;) {
      if (this.isOp("|")) value = this.filters(value, false) as Expression;
      else if (this.isName("is")) value = this.test(value);
      else if (this.isOp("(")) value = this.call(value);
      else return value;
    }
  }

  private dottedName(): string {
    let name = this.expect("name").value;
    while (this.skipOp(".")) name += `.${this.expect("name").value}`;
    return name;
  }

  /** Filters behind a value. `inline`: the first without a bar. */
  private filters(start: Expression | undefined, inline: boolean): Expression | undefined {
    let value = start;
    let isInline = inline;
    while (isInline || this.isOp("|")) {
      if (!isInline) this.next();
      isInline = false;
      const { line } = this.current;
      const name = this.dottedName();
      value = { type: "filter", value, name, args: this.isOp("(") ? this.args() : NO_ARGUMENTS, line };
    }
    return value;
  }

  private test(value: Expression): Expression {
    const { line } = this.next();
    const negated = this.skipName("not");
    const name = this.dottedName();
    let args = NO_ARGUMENTS;
    const { type, value: word } = this.current;
    if (this.isOp("(")) args = this.args();
    else if (
      (type === "name" && !["else", "or", "and"].includes(word)) ||
      type === "text" ||
      type === "number" ||
      this.isOp("[") ||
      this.isOp("{")
    ) {
      if (this.isName("is")) this.fail("You cannot chain multiple tests with is");
      args = { ...NO_ARGUMENTS, positional: [this.postfix(this.primary())] };
    }
    const test: Expression = { type: "test", value, name, args, line };
    return negated ? { type: "unary", operator: "not", operand: test, line } : test;
  }
}
