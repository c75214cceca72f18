import { wrongKind, wrongValue } from "@mlxts/core";

/** Far more than any model has: a config must not decide how much memory is taken to read it. */
export const MAX_LAYERS = 4096;
/** The largest f32. */
const MAX_F32 = 3.4028234663852886e38;
/** What the routing takes. */
export const MAX_EXPERTS = 65536;

/** Reads the fields of a JSON object by type; errors name the field. A field that is null counts as missing. */
export class Fields {
  private readonly values: Readonly<Record<string, unknown>>;
  private readonly path: string;
  /** The call that errors name. */
  private readonly op: string;

  constructor(values: Readonly<Record<string, unknown>>, path = "config", op = "loadModel") {
    this.values = values;
    this.path = path;
    this.op = op;
  }

  has(name: string): boolean {
    return Object.hasOwn(this.values, name) && this.values[name] !== null && this.values[name] !== undefined;
  }

  private get(name: string): unknown {
    return Object.hasOwn(this.values, name) ? this.values[name] : undefined;
  }

  private name(field: string): string {
    return `${this.path}.${field}`;
  }

  /** Refuses the value of a field, for a rule that concerns other fields too. */
  refuse(name: string, rule: string, value: unknown): never {
    throw wrongValue(this.op, this.name(name), rule, value);
  }

  /** An integer from 1 to `max`. */
  size(name: string, fallback?: number, max = 0x7fffffff): number {
    const value = this.has(name) ? this.get(name) : fallback;
    if (typeof value !== "number") throw wrongKind(this.op, this.name(name), "be a number", value);
    if (!Number.isInteger(value) || value < 1 || value > max)
      throw wrongValue(this.op, this.name(name), `be an integer from 1 to ${max}`, value);
    return value;
  }

  /** A number above `above` and up to `most`; both as f32, which kernels take. */
  number(name: string, above: number, fallback?: number, most = MAX_F32): number {
    const value = this.has(name) ? this.get(name) : fallback;
    if (typeof value !== "number") throw wrongKind(this.op, this.name(name), "be a number", value);
    if (!Number.isFinite(value) || value <= above) throw wrongValue(this.op, this.name(name), `be > ${above}`, value);
    if (value > most) throw wrongValue(this.op, this.name(name), `be at most ${most}`, value);
    if (Math.fround(value) <= above) throw wrongValue(this.op, this.name(name), `be > ${above} as f32`, value);
    return value;
  }

  /** A number from `min` to `max`. */
  between(name: string, min: number, max: number, fallback?: number): number {
    const value = this.has(name) ? this.get(name) : fallback;
    if (typeof value !== "number") throw wrongKind(this.op, this.name(name), "be a number", value);
    if (!(value >= min && value <= max)) {
      const above = min === Number.MIN_VALUE ? "above 0" : `at least ${min}`;
      throw wrongValue(
        this.op,
        this.name(name),
        `be ${above}${max === Number.MAX_VALUE ? " and finite" : ` and at most ${max}`}`,
        value,
      );
    }
    return value;
  }

  boolean(name: string, fallback: boolean): boolean {
    const value = this.has(name) ? this.get(name) : fallback;
    if (typeof value !== "boolean") throw wrongKind(this.op, this.name(name), "be a boolean", value);
    return value;
  }

  /** One of `values`. */
  choice<const V extends string>(name: string, values: readonly V[], fallback?: V): V {
    const value = this.has(name) ? this.get(name) : fallback;
    if (!values.includes(value as V))
      throw wrongValue(this.op, this.name(name), `be one of ${values.join(", ")}`, value);
    return value as V;
  }

  /** A list of `length` of `values`, or undefined when the field is missing. */
  choices<const V extends string>(name: string, values: readonly V[], length: number): V[] | undefined {
    if (!this.has(name)) return undefined;
    const list = this.get(name);
    if (!Array.isArray(list) || list.length !== length || !list.every((item) => values.includes(item)))
      throw wrongValue(this.op, this.name(name), `be ${length} of ${values.join(", ")}`, list);
    return list as V[];
  }

  /** A list of integers from 0 to `count` − 1, empty when the field is missing. */
  indices(name: string, count: number): number[] {
    const list = this.has(name) ? this.get(name) : [];
    if (!Array.isArray(list) || !list.every((index) => Number.isInteger(index) && index >= 0 && index < count))
      throw wrongValue(this.op, this.name(name), `be a list of integers from 0 to ${count - 1}`, list);
    return list as number[];
  }

  /** An object, empty when the field is missing. */
  object(name: string): Fields {
    const value = this.has(name) ? this.get(name) : {};
    if (value === null || typeof value !== "object" || Array.isArray(value))
      throw wrongKind(this.op, this.name(name), "be an object", value);
    return new Fields(value as Record<string, unknown>, this.name(name), this.op);
  }

  /**
   * What `read` makes of the fields of the rotary embedding and its type, one of `types`, "default" where nothing is said:
   * `rope_parameters` of newer files, or `rope_scaling` of older ones and mlx-lm's. Where there are both, they must agree.
   */
  rope<const V extends string, T>(types: readonly V[], read: (rope: Fields, type: V) => T): T {
    const readOf = (name: string) => {
      const rope = this.object(name);
      return read(rope, rope.ropeType(types));
    };
    const [found, other] = ["rope_parameters", "rope_scaling"].filter((name) => this.has(name)).map(readOf);
    if (other !== undefined && JSON.stringify(other) !== JSON.stringify(found))
      this.refuse("rope_scaling", "say the same as rope_parameters", "another rotary embedding");
    return found ?? readOf("rope_parameters");
  }

  /** mlx-lm writes the type as `type`, Hugging Face as `rope_type`, some files as both. */
  private ropeType<const V extends string>(types: readonly V[]): V {
    const type = this.choice("type", types, "default" as V);
    if (!this.has("rope_type")) return type;
    return this.choice("rope_type", this.has("type") ? [type] : types);
  }

  /** Token ids: a number or a list of numbers; undefined when the field is missing. */
  ids(name: string): number[] | undefined {
    if (!this.has(name)) return undefined;
    const value = this.get(name);
    const list = Array.isArray(value) ? value : [value];
    if (!list.every((id) => Number.isInteger(id) && id >= 0))
      throw wrongValue(this.op, this.name(name), "be token ids", value);
    return list as number[];
  }
}
