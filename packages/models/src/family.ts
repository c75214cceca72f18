import type { Checkpoint } from "@mlxts/core";
import type { Packing } from "@mlxts/quant4";
import type { LanguageModel, ModelSettings } from "./language_model.ts";
import type { SourceTensor } from "./source_tensors.ts";
import type { Weights } from "./weights.ts";

/** What a family reads from `config.json`: the part that all families have. */
export interface ModelConfig {
  readonly vocabSize: number;
}

/** One tensor of an MLX checkpoint that is to be written, under its name in mlx-lm. */
export interface PlannedTensor extends SourceTensor {
  /** How it is quantized; its name then ends in `.weight`, and `.scales` and `.biases` are written beside it. */
  packing?: Packing | undefined;
}

/** What turns a Hugging Face checkpoint into the one that mlx-lm would write. */
export interface MlxPlan {
  config: Record<string, unknown>;
  tensors: PlannedTensor[];
  /**
   * Names of the checkpoint's tensors for layers that predict the tokens after the next one. mlx-lm has no place for them:
   * they are kept as they are, in a file of their own.
   */
  nextTokens?: string[];
}

/**
 * How the checkpoints of a model family are opened and converted. Everything that is peculiar to a family is behind this
 * contract and behind the `LanguageModel` that it loads; it lies in a folder of its own and is listed in `families.ts`.
 */
export interface Family<Config extends ModelConfig = ModelConfig> {
  /** The values of `model_type` in `config.json` that it opens. */
  readonly modelTypes: readonly string[];
  /**
   * Reads and checks a `config.json`.
   * @throws TypeError or RangeError `InvalidArgument` that names the field
   */
  readConfig(json: Record<string, unknown>): Config;
  /**
   * Binds the weights that the config asks for, under the names of Hugging Face and of MLX checkpoints. The model owns the
   * weights; when this throws, the caller disposes them.
   */
  load(weights: Weights, config: Config, settings: ModelSettings): Promise<LanguageModel>;
  /**
   * Plans what mlx-lm writes for a Hugging Face checkpoint: names, axes, elements, and which tensors are quantized.
   * `packing` is what the caller asked for.
   */
  planMlx(checkpoint: Checkpoint, json: Record<string, unknown>, packing: Packing): MlxPlan;
}
