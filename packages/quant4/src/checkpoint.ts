import { type Checkpoint, MlxtsError, OTHER_QUANTIZED_MODES, unsupported } from "@mlxts/core";
import { BITS, type Bits, GROUP_SIZES, type GroupSize, type Quantized } from "./quantized.ts";

/** How a module is quantized; what an override leaves out is read from the shapes. */
export interface QuantizationSetting {
  readonly bits?: number;
  readonly groupSize?: number;
  readonly mode: string;
}

type Override = QuantizationSetting | boolean | MlxtsError;

/** The quantization a checkpoint's `config.json` declares: one setting, and overrides by module path. */
export interface Quantization {
  readonly bits: number;
  readonly groupSize: number;
  readonly mode: string;
  /** `true`: quantized with the common setting. `false`: not quantized. An error: what is no override of a module. */
  readonly overrides: ReadonlyMap<string, Override>;
}

const KNOWN_BITS: readonly unknown[] = [2, 3, 4, 5, 6, 8];
/** 16 belongs to nvfp4. */
const KNOWN_GROUP_SIZES: readonly unknown[] = [16, ...GROUP_SIZES];
const KNOWN_MODES: readonly unknown[] = ["affine", ...OTHER_QUANTIZED_MODES];
/** Tensors of other libraries' layouts beside a module's `scales`. */
const FOREIGN = ["qweight", "weight_packed", "g_idx"] as const;

function quantConfig(module: string, reason: string): MlxtsError {
  return new MlxtsError("QuantConfig", `${module === "" ? "config.json" : module}: ${reason}`, { module, reason });
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  value !== null && typeof value === "object" && !Array.isArray(value);

/** A value of the file in a message; it may be anything. */
const brief = (value: unknown) => (JSON.stringify(value) ?? "undefined").slice(0, 80);

const list = (values: readonly unknown[]) => values.join(", ");

function settingOf(module: string, value: Record<string, unknown>): QuantizationSetting {
  const { bits, group_size: groupSize, mode = "affine" } = value;
  const check = (name: string, given: unknown, known: readonly unknown[]) => {
    if (!known.includes(given))
      throw quantConfig(module, `\`${name}\` must be one of ${list(known)}, got ${brief(given)}`);
  };
  check("mode", mode, KNOWN_MODES);
  if (bits !== undefined) check("bits", bits, KNOWN_BITS);
  if (groupSize !== undefined) check("group_size", groupSize, KNOWN_GROUP_SIZES);
  return {
    mode: mode as string,
    ...(bits !== undefined && { bits: bits as number }),
    ...(groupSize !== undefined && { groupSize: groupSize as number }),
  };
}

/** What a key of a quantization says of the module of that name; not all keys name modules. */
function overrideFor(module: string, value: unknown): Override {
  if (typeof value === "boolean") return value;
  if (!isObject(value))
    return quantConfig(module, `its override must be true, false or an object, got ${brief(value)}`);
  try {
    return settingOf(module, value);
  } catch (error) {
    return error as MlxtsError;
  }
}

/**
 * What `config.json` (parsed, not trusted) says of quantization: its key `quantization`, else `quantization_config`, as
 * MLX writes them. Undefined when it has neither. A key that is no override of a module is refused when it turns out to be
 * the path of one.
 * @throws MlxtsError `QuantConfig` for malformed settings, `UnsupportedDtype` for the layouts of other libraries
 */
export function quantizationOf(config: unknown): Quantization | undefined {
  if (!isObject(config)) throw quantConfig("", "must be a JSON object");
  const key = config.quantization != null ? "quantization" : "quantization_config";
  const given = config[key];
  if (given == null) return undefined;
  if (!isObject(given)) throw quantConfig("", `\`${key}\` must be an object`);
  const { group_size: _, bits: __, mode: ___, quant_method: method, ...modules } = given;
  if (method != null && method !== "mlx") {
    const remedy =
      method === "fp8" ? "quantize it with `mlxts quantize`" : "quantize the original weights with `mlxts quantize`";
    throw unsupported("quantizationOf", `quant_method ${brief(method)}`, remedy);
  }
  const { bits, groupSize, mode } = settingOf("", given);
  if (bits === undefined || groupSize === undefined)
    throw quantConfig("", `\`${key}\` must have \`bits\` and \`group_size\``);
  const overrides = Object.entries(modules).map(([module, value]) => [module, overrideFor(module, value)] as const);
  return { bits, groupSize, mode, overrides: new Map(overrides) };
}

/** A module path without the prefixes that loaders move about: `model.language_model`, `language_model.model`, `model`. */
const bare = (path: string) => path.replace(/^((model|language_model)\.)+/, "");

function overrideOf({ overrides }: Quantization, path: string): QuantizationSetting | boolean | undefined {
  const valid = (value: Override | undefined) => {
    if (value instanceof MlxtsError) throw value;
    return value;
  };
  const exact = valid(overrides.get(path));
  if (exact !== undefined) return exact;
  const found = [...overrides].filter(([module]) => bare(module) === bare(path));
  const [first, ...others] = found.map(([, value]) => valid(value));
  if (others.some((other) => JSON.stringify(other) !== JSON.stringify(first)))
    throw quantConfig(path, `has different overrides as ${list(found.map(([module]) => module))}`);
  return first;
}

interface PackingOptions {
  cols?: number;
  offered?: readonly Bits[];
}

/** How a quantized matrix is packed. */
export interface Packing {
  bits: Bits;
  groupSize: GroupSize;
}

/**
 * How module `path` is packed, or undefined when it is not quantized: it has no override, or false, and no
 * `path.scales`. Reads the shapes of `path.weight`, `path.scales` and `path.biases`, not their elements.
 *
 * The override's path may have its prefixes in another order. Where an override names no width or group size, or where
 * a module without override contradicts the common setting of a config that has overrides for others, they are read from
 * the shapes; `cols`, the true number of columns, makes that unambiguous and is checked when given. `offered`: the bits
 * of a code that the caller supports; default 2, 4 and 8. Matrix products support 4 and 8 (`PRODUCT_BITS`).
 * @throws MlxtsError `QuantConfig` {module, reason} where config and tensors contradict each other, `UnsupportedDtype`
 *   for widths, modes and layouts that the ops do not offer
 */
export function packingOf(
  checkpoint: Checkpoint,
  quantization: Quantization,
  path: string,
  { cols, offered = BITS }: PackingOptions = {},
): Packing | undefined {
  const override = overrideOf(quantization, path);
  const has = (name: string) => checkpoint.has(`${path}.${name}`);
  const refuse = (reason: string) => quantConfig(path, reason);
  const quantized = has("scales");
  if (override === false || override === undefined) {
    if (!quantized) return undefined;
    if (override === false) throw refuse("the config says that it is not quantized, but it has `scales`");
  }
  const foreign = FOREIGN.find(has);
  if (foreign) throw unsupported("readQuantized", `the layout of ${path}.${foreign}`, "convert the model with mlx-lm");
  const declared: QuantizationSetting = typeof override === "object" ? override : quantization;
  if (declared.mode !== "affine")
    throw unsupported("readQuantized", `mode ${declared.mode} of ${path}`, "mode affine is");
  for (const name of ["weight", "scales", "biases"])
    if (!has(name))
      throw refuse(`is quantized according to the ${override ? "config" : "tensors"}, but has no \`${name}\``);
  const shapes = shapesOf(checkpoint, path, refuse);
  // Overrides may go by paths from before a renaming; a config without any has nothing to excuse a contradiction.
  const strict =
    typeof override === "object" || [...quantization.overrides.values()].every((each) => each instanceof MlxtsError);
  const { bits, groupSize } = settle(declared, strict, shapes, cols, refuse);
  if (!offered.includes(bits as Bits))
    throw unsupported("readQuantized", `a width of ${bits} bits (${path})`, `bits ${list(offered)} are`);
  return { bits: bits as Bits, groupSize };
}

/**
 * The quantized matrix of module `path` (its tensors `path.weight`, `path.scales`, `path.biases`, where they lie), or
 * undefined when the module is not quantized. Settled, and refused, as `packingOf` does. With `anyByte`, tensors that the file
 * does not align are not copied on a CPU: `gatherQuantizedMatmul` takes these, other ops do not.
 */
export function readQuantized(
  checkpoint: Checkpoint,
  quantization: Quantization,
  path: string,
  { anyByte = false, ...options }: PackingOptions & { anyByte?: boolean } = {},
): Quantized | undefined {
  const packing = packingOf(checkpoint, quantization, path, options);
  if (!packing) return undefined;
  const read = (name: string) => (anyByte ? checkpoint.tensorAtAnyByte(name) : checkpoint.tensor(name));
  const [weight, scales, biases] = ["weight", "scales", "biases"].map((name) => read(`${path}.${name}`));
  return { weight, scales, biases, ...packing, mode: "affine" } as Quantized;
}

interface Shapes {
  words: number;
  groups: number;
}

function shapesOf(checkpoint: Checkpoint, path: string, refuse: (reason: string) => Error): Shapes {
  const [weight, scales, biases] = ["weight", "scales", "biases"].map((name) => checkpoint.info(`${path}.${name}`)) as [
    ReturnType<Checkpoint["info"]>,
    ReturnType<Checkpoint["info"]>,
    ReturnType<Checkpoint["info"]>,
  ];
  const text = (shape: readonly number[]) => `[${shape.join(", ")}]`;
  if (weight.storedDtype !== "U32") throw refuse(`\`weight\` must have dtype U32, got ${weight.storedDtype}`);
  if (!["F32", "F16", "BF16"].includes(scales.storedDtype))
    throw refuse(`\`scales\` must have dtype F32, F16 or BF16, got ${scales.storedDtype}`);
  if (biases.storedDtype !== scales.storedDtype)
    throw refuse(`\`biases\` must have the dtype of \`scales\`, ${scales.storedDtype}, got ${biases.storedDtype}`);
  if (weight.shape.length < 2) throw refuse(`\`weight\` must have at least 2 dimensions, got ${text(weight.shape)}`);
  if (text(scales.shape.slice(0, -1)) !== text(weight.shape.slice(0, -1)))
    throw refuse(`\`scales\` ${text(scales.shape)} must have the rows of \`weight\` ${text(weight.shape)}`);
  if (text(biases.shape) !== text(scales.shape))
    throw refuse(`\`biases\` must have the shape of \`scales\`, ${text(scales.shape)}, got ${text(biases.shape)}`);
  const [words, groups] = [weight, scales].map(({ shape }) => shape[shape.length - 1] as number) as [number, number];
  if (words === 0 || groups === 0) throw refuse("has no columns");
  return { words, groups };
}

/** Width and group size as declared if the shapes agree, else what the shapes say, if that is one thing only. */
function settle(
  declared: QuantizationSetting,
  strict: boolean,
  { words, groups }: Shapes,
  cols: number | undefined,
  refuse: (reason: string) => Error,
): { bits: number; groupSize: GroupSize } {
  const fits = (bits: unknown, groupSize: unknown) =>
    words * 32 === (bits as number) * (groupSize as number) * groups &&
    (cols === undefined || cols === groups * (groupSize as number));
  const shapes = `${words} words and ${groups} groups in a row${cols === undefined ? "" : ` of ${cols} columns`}`;
  const possible = KNOWN_BITS.flatMap((bits) =>
    GROUP_SIZES.filter((groupSize) => fits(bits, groupSize)).map((groupSize) => ({ bits: bits as number, groupSize })),
  );
  const { bits = undefined, groupSize = undefined } = declared;
  const agreeing = possible.filter(
    (p) => (bits === undefined || p.bits === bits) && (groupSize === undefined || p.groupSize === groupSize),
  );
  const candidates = agreeing.length > 0 || strict ? agreeing : possible;
  const [only] = candidates;
  if (!only)
    throw refuse(
      `${shapes} contradict ${bits ?? "any"} bits in groups of ${groupSize ?? "any size"}${strict ? "" : " and every other setting"}`,
    );
  if (candidates.length > 1)
    throw refuse(
      `${shapes} can be ${candidates.map((p) => `${p.bits} bits in groups of ${p.groupSize}`).join(" or ")}`,
    );
  return only;
}
