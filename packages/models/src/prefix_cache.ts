import { checkOptionNames, printAsJson, type Tensor, wrongKind, wrongValue } from "@mlxts/core";
import { allOrNone } from "./all_or_none.ts";
import { type NumberArray, readCacheRows, writeCacheRows } from "./cache_rows.ts";
import { checkInteger } from "./check_integer.ts";
import { checkPath, type LanguageModel } from "./language_model.ts";
import type { ModelPath, Snapshots } from "./pass.ts";
import type { ModelState } from "./state.ts";

/** Refuses a value that is not a cache of that model. `instanceof` would refuse caches of other copies of the library. */
export function checkCache(op: string, model: LanguageModel, cache: PrefixCache | undefined): void {
  if (cache === undefined) return;
  if (typeof (cache as Partial<PrefixCache> | null)?.match !== "function")
    throw wrongKind(op, "cache", "be a PrefixCache", cache);
  if (cache.model !== model) throw wrongValue(op, "cache", "belong to the model", "the cache of another model");
}

export interface PrefixCacheOptions {
  /** Tokens between two kept states: a multiple of `model.snapshotUnit`. Default 256. */
  every?: number;
  /** The most bytes that it holds. Default 1 GiB. */
  maxBytes?: number;
}

/** `every` tokens of a prompt, after those of its parent: the cache rows of these tokens, and the fixed tensors after them. */
interface Block {
  key: string;
  parent: Block | undefined;
  children: Map<string, Block>;
  tensors: Map<string, NumberArray>;
  bytes: number;
  /** When it was last used, by the clock of the cache. */
  used: number;
}

/** Tensors for the snapshots of a pass; undefined when no sequence reaches a state that is kept. */
export interface PassSnapshots extends Disposable {
  snapshots: Snapshots | undefined;
}

/**
 * Keeps what a model has computed of prompts, for later prompts that begin with the same tokens: pass it to `prefill`,
 * `generate` or their batches. After every `every` tokens of a prompt it keeps the fixed tensors of the state, and the
 * cache rows of the tokens between; prompts with a common beginning share them. It holds copies on the host: states may be
 * disposed. When it would exceed `maxBytes`, it drops what was not used for longest.
 *
 * On the same `path` a prompt has the same bits whatever the cache holds. States of different paths are kept apart.
 */
export class PrefixCache {
  readonly model: LanguageModel;
  readonly every: number;
  readonly maxBytes: number;
  /** By path. */
  private readonly roots = new Map<ModelPath, Block>();
  private held = { bytes: 0, blocks: 0 };
  /** Counts uses. */
  private clock = 0;

  constructor(model: LanguageModel, options: PrefixCacheOptions = {}) {
    const op = "PrefixCache";
    checkOptionNames(op, options, { every: true, maxBytes: true });
    const { every = 256, maxBytes = 2 ** 30 } = options;
    checkInteger(op, "every", every, 1);
    if (every % model.snapshotUnit !== 0)
      throw wrongValue(op, "every", `be a multiple of ${model.snapshotUnit} tokens`, every);
    checkInteger(op, "maxBytes", maxBytes, 0);
    this.model = model;
    this.every = every;
    this.maxBytes = maxBytes;
  }

  /** Bytes that it holds. */
  get byteLength(): number {
    return this.held.bytes;
  }

  /** Kept states, each with the cache rows of `every` tokens. */
  get blocks(): number {
    return this.held.blocks;
  }

  /** Drops everything. */
  clear(): void {
    this.roots.clear();
    this.held = { bytes: 0, blocks: 0 };
  }

  /** How many of the first tokens of `ids` it holds. */
  match(ids: readonly number[], path?: ModelPath): number {
    return this.chain(ids, checkPath("cache.match", this.model, path)).length * this.every;
  }

  /** @internal Refuses a `blockLength` that does not fit `every`, and sequences that are not empty. */
  check(op: string, state: ModelState, prompts: readonly (readonly number[])[], blockLength: number): void {
    if (blockLength % this.every !== 0)
      throw wrongValue(op, "blockLength", `be a multiple of the cache's ${this.every} tokens`, blockLength);
    for (const [at, ids] of prompts.entries())
      if (ids.length > 0 && state.length(at) > 0) {
        const where = state.sequences === 1 ? "" : ` in sequence ${at}`;
        throw wrongValue(op, "state", "be empty when there is a `cache`", `${state.length(at)} tokens${where}`);
      }
  }

  private key(ids: readonly number[], block: number): string {
    return ids.slice(block * this.every, (block + 1) * this.every).join();
  }

  /** The longest chain of blocks with which `ids` begins. */
  private chain(ids: readonly number[], path: ModelPath): Block[] {
    const found: Block[] = [];
    let block = this.roots.get(path);
    while (block && (found.length + 1) * this.every <= ids.length) {
      block = block.children.get(this.key(ids, found.length));
      if (block) found.push(block);
    }
    return found;
  }

  /** @internal Restores the longest beginning of `ids` that it holds into an empty sequence; returns its number of tokens. */
  restore(state: ModelState, sequence: number, ids: readonly number[], path: ModelPath): number {
    const chain = this.chain(ids, path);
    this.clock++;
    for (const [i, block] of chain.entries()) {
      block.used = this.clock;
      for (const { name, kind, tensor } of state.tensors) {
        const data = block.tensors.get(name);
        if (!data) continue;
        if (kind === "cache") writeCacheRows(tensor, sequence, i * this.every, (i + 1) * this.every, data);
        else if (i === chain.length - 1) state.fixedRows(name, sequence).write(data);
      }
    }
    const tokens = chain.length * this.every;
    if (tokens > 0) state.replaced(sequence, tokens);
    return tokens;
  }

  /** @internal Makes tensors for the states that a pass goes through. */
  snapshots(state: ModelState, counts: readonly number[]): PassSnapshots {
    const of = (tokens: number) => Math.floor(tokens / this.every);
    if (counts.every((count) => of(count) === 0)) return { snapshots: undefined, [Symbol.dispose]() {} };
    const slots = of(counts.reduce((sum, count) => sum + count, 0));
    const fixed = state.tensors.filter(({ kind }) => kind === "fixed");
    const tensors = allOrNone(fixed, ({ name, dtype }) => {
      const [, ...shape] = state.fixedRows(name, 0).shape;
      return this.model.device.tensor(dtype, [slots, ...shape]);
    });
    const named: [string, Tensor][] = tensors.map((tensor, i) => [(fixed[i] as { name: string }).name, tensor]);
    return {
      snapshots: { every: this.every, tensors: Object.fromEntries(named) },
      [Symbol.dispose]() {
        for (const tensor of tensors) tensor.dispose();
      },
    };
  }

  /** @internal Keeps the states that a pass has gone through, and the cache rows between them. */
  async keep(
    state: ModelState,
    { snapshots }: PassSnapshots,
    prompts: readonly { ids: readonly number[] }[],
    parts: readonly { begin: number; end: number }[],
    path: ModelPath,
  ): Promise<void> {
    if (!snapshots) return;
    let slot = 0;
    for (const [sequence, { begin, end }] of parts.entries()) {
      const { ids } = prompts[sequence] as { ids: readonly number[] };
      for (let at = begin; at + this.every <= end; at += this.every, slot++) {
        const known = this.chain(ids.slice(0, at + this.every), path);
        // Other calls run meanwhile: the block may be there already, or the one before it dropped.
        if (known.length * this.every !== at) continue;
        const tensors: Block["tensors"] = new Map();
        for (const { name, kind, tensor } of state.tensors) {
          if (kind === "log") continue;
          const fixed = kind === "fixed" ? snapshots.tensors[name]?.slice(slot, slot + 1) : undefined;
          const data = fixed ? await fixed.read() : await readCacheRows(tensor, sequence, at, at + this.every);
          tensors.set(name, data as NumberArray);
        }
        this.insert(ids.slice(0, at + this.every), path, tensors);
      }
    }
  }

  /** Inserts the last block of `ids`, unless other calls have inserted it or dropped the one before it. */
  private insert(ids: readonly number[], path: ModelPath, tensors: Block["tensors"]): void {
    const depth = ids.length / this.every - 1;
    const chain = this.chain(ids, path);
    if (chain.length !== depth) return;
    const key = this.key(ids, depth);
    const bytes = [...tensors.values()].reduce((sum, { byteLength }) => sum + byteLength, 0) + 4 * this.every;
    this.clock++;
    for (const block of chain) block.used = this.clock;
    if (!this.makeRoom(bytes, new Set(chain))) return;
    const parent = chain.at(-1) ?? this.root(path);
    parent.children.set(key, { key, parent, children: new Map(), tensors, bytes, used: this.clock });
    this.held.bytes += bytes;
    this.held.blocks++;
  }

  private root(path: ModelPath): Block {
    const existing = this.roots.get(path);
    if (existing) return existing;
    const root: Block = { key: "", parent: undefined, children: new Map(), tensors: new Map(), bytes: 0, used: 0 };
    this.roots.set(path, root);
    return root;
  }

  /** Drops blocks without children, the longest unused first, until `bytes` more fit; false when they never will. */
  private makeRoom(bytes: number, needed: ReadonlySet<Block>): boolean {
    while (this.held.bytes + bytes > this.maxBytes) {
      let oldest: Block | undefined;
      const visit = (block: Block) => {
        for (const child of block.children.values()) visit(child);
        const droppable = block.parent && block.children.size === 0 && !needed.has(block);
        if (droppable && (!oldest || block.used < oldest.used)) oldest = block;
      };
      for (const root of this.roots.values()) visit(root);
      if (!oldest) return false;
      oldest.parent?.children.delete(oldest.key);
      this.held.bytes -= oldest.bytes;
      this.held.blocks--;
    }
    return true;
  }

  /** What `JSON.stringify` and `console.log` show. */
  toJSON(): object {
    const { every, maxBytes, byteLength, blocks } = this;
    return { type: "PrefixCache", modelType: this.model.modelType, every, maxBytes, byteLength, blocks };
  }
}

printAsJson(PrefixCache);
