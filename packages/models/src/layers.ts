// Passes layer by layer. A layer is recorded as a block, which is appended for each layer that is like it, in this pass and
// in later ones, with the tensors of these: that takes a fraction of the time of calling the ops.
import type { Arena, Block, CommandEncoder, Tensor } from "@mlxts/core";
import { describe } from "./description.ts";
import { OPTIMIZE_PROMPT } from "./optimize.ts";
import type { EncodeOptions, Tokens } from "./pass.ts";
import type { ModelState } from "./state.ts";

/** A layer of a model. */
export interface LayerWeights {
  /** Of the norm before it. */
  readonly inputNorm: Tensor;
}

/** How a model records a pass, layer by layer. What a layer records depends on its weights and on what the pass is of. */
export interface LayeredPass {
  readonly layers: readonly LayerWeights[];
  /** Records what comes before the first layer; returns the hidden state, which the layers change in place. */
  begin(encoder: CommandEncoder): Tensor;
  /** Records the norm before layer `index`. */
  norm(encoder: CommandEncoder, index: number, hidden: Tensor, out?: Tensor): Tensor;
  /** Records layer `index` over x, the hidden state after the norm. */
  layer(encoder: CommandEncoder, index: number, x: Tensor, hidden: Tensor): void;
}

/** What a pass is of. */
export interface PassSubject {
  state: ModelState;
  tokens: Tokens;
  options: EncodeOptions;
}

/** Records a pass on one encoder; returns the hidden state. */
export function encodeLayers(encoder: CommandEncoder, pass: LayeredPass): Tensor {
  const hidden = pass.begin(encoder);
  const mark = encoder.arena?.mark();
  for (const index of pass.layers.keys()) {
    pass.layer(encoder, index, pass.norm(encoder, index, hidden), hidden);
    if (mark) encoder.arena?.rewind(mark);
  }
  return hidden;
}

/** The most blocks that are kept of a model: passes differ in their numbers of tokens and in the sizes of their states. */
const MAX_BLOCKS = 64;

/** What is known of a model's layers. */
class KnownLayers {
  /** Of each layer its description, as a number, and its tensors. */
  readonly each: readonly { kind: number; tensors: readonly Tensor[] }[];
  /** By what a block depends on; those used last come last. */
  private readonly blocks = new Map<string, Block>();

  constructor(layers: readonly LayerWeights[]) {
    const kinds = new Map<string, number>();
    this.each = layers.map((layer, index) => {
      const tensors: Tensor[] = [];
      // The norm after a layer becomes one op with the layer's last sum: it is recorded with the layer.
      const text = describe({ ...layer, inputNorm: layers[index + 1]?.inputNorm }, tensors);
      const kind = kinds.get(text) ?? kinds.size;
      kinds.set(text, kind);
      return { kind, tensors };
    });
  }

  block(key: string, record: () => Block): Block {
    const block = this.blocks.get(key) ?? record();
    this.blocks.delete(key);
    this.blocks.set(key, block);
    const [oldest] = this.blocks.keys();
    if (this.blocks.size > MAX_BLOCKS) this.blocks.delete(oldest as string);
    return block;
  }
}

/** By the layers of a model, which stay the same. */
const KNOWN = new WeakMap<readonly LayerWeights[], KnownLayers>();

function knownLayers(layers: readonly LayerWeights[]): KnownLayers {
  const known = KNOWN.get(layers) ?? new KnownLayers(layers);
  KNOWN.set(layers, known);
  return known;
}

/** The tensors of a state, and those of snapshots, by the layer that ends their names. */
function tensorsByLayer(state: ModelState, snapshots: EncodeOptions["snapshots"]): Map<string, Record<string, Tensor>> {
  const byLayer = new Map<string, Record<string, Tensor>>();
  const add = (kind: string, name: string, tensor: Tensor) => {
    const end = name.lastIndexOf(".");
    const layer = name.slice(end + 1);
    const own = byLayer.get(layer) ?? {};
    own[`${kind} ${name.slice(0, end)}`] = tensor;
    byLayer.set(layer, own);
  };
  for (const { name, tensor } of state.tensors) add("state", name, tensor);
  for (const [name, tensor] of Object.entries(snapshots?.tensors ?? {})) add("snapshot", name, tensor);
  return byLayer;
}

/** After so many layers what is recorded is handed to the device, which works while the next ones are recorded. */
const LAYERS_AT_ONCE = 3;

/**
 * Records a pass on encoders of the arena; returns the hidden state and the encoder on which the last layers are. `full` takes
 * an encoder that has enough, in the order in which they are to run.
 */
export function recordLayers(
  pass: LayeredPass,
  { state, tokens, options }: PassSubject,
  arena: Arena,
  full: (encoder: CommandEncoder) => void,
): { hidden: Tensor; encoder: CommandEncoder } {
  const { device } = state;
  const { layers } = pass;
  const { snapshots, ...rest } = options;
  const known = knownLayers(layers);
  let encoder = device.encoder({ arena });
  try {
    const hidden = pass.begin(encoder);
    const x = pass.norm(encoder, 0, hidden);
    const common: Tensor[] = [];
    const { maxRollback } = state;
    const subject = describe({ hidden, x, tokens, rest, every: snapshots?.every, maxRollback }, common);
    const ofLayers = tensorsByLayer(state, snapshots);
    const record = (index: number, tensors: readonly Tensor[]): Block => {
      using own = device.encoder({ arena, optimize: OPTIMIZE_PROMPT });
      pass.layer(own, index, x, hidden);
      if (index + 1 < layers.length) pass.norm(own, index + 1, hidden, x);
      return own.block(tensors);
    };
    // All layers use the same scratch memory: they run one after the other.
    const scratch = arena.mark();
    for (const [index, { kind, tensors: weights }] of known.each.entries()) {
      const tensors = [...common, ...weights];
      const key = `${kind} ${subject} ${describe({ ...ofLayers.get(`${index}`) }, tensors)}`;
      const block = known.block(key, () => record(index, tensors));
      arena.rewind(scratch);
      encoder.append(block, tensors);
      if ((index + 1) % LAYERS_AT_ONCE > 0 || index + 1 === layers.length) continue;
      full(encoder);
      encoder = device.encoder({ arena });
    }
    arena.rewind(scratch);
    return { hidden, encoder };
  } catch (error) {
    encoder.dispose();
    throw error;
  }
}
