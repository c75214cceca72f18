import { cpSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Device } from "@mlxts/core";
import { repeated } from "@mlxts/test-kit/rings";
import fc from "fast-check";
import { afterAll, describe, expect, it } from "vitest";
import {
  type ChatMessage,
  generate,
  loadModel,
  quantizeCheckpoint,
  readJson,
  readOptionalJson,
  TextStream,
  Tokenizer,
} from "../src/index.ts";
import { temporary, tiny, tiny4bit, withConfig } from "./fixtures.ts";

const device = Device.open("cpu");
afterAll(() => device.dispose());

/** Fails unless the call succeeds or fails with a typed error. */
function typed(error: unknown): void {
  const { code } = error as { code?: string };
  if (
    ![
      "InvalidArgument",
      "Io",
      "Safetensors",
      "QuantConfig",
      "UnsupportedDtype",
      "ChatTemplate",
      "LimitExceeded",
    ].includes(code ?? "")
  )
    throw error;
}

type Json = unknown;
const hostileValue: fc.Arbitrary<Json> = fc.oneof(
  fc.constantFrom<Json>(
    null,
    true,
    "",
    "__proto__",
    "constructor",
    -1,
    0,
    1.5,
    2 ** 31,
    2 ** 53,
    1e300,
    [],
    {},
    [[]],
    [{}],
    [null],
  ),
  fc.string({ maxLength: 8 }),
  fc.integer(),
  fc.jsonValue({ maxDepth: 2 }),
  fc.constantFrom<Json>(
    { type: "Sequence" },
    { type: "Replace", pattern: { Regex: "(a*)*$" }, content: "aa" },
    { type: "Split", pattern: { Regex: "(?<n>a)\\k<n>[" }, behavior: "Isolated" },
    { type: "FixedLength", length: 0.001 },
    { type: "ByteLevel" },
    { Regex: "\\p{Nothing}" },
    { content: "a".repeat(20_000), id: 1 },
  ),
);

interface Change {
  steps: number[];
  kind: "replace" | "remove" | "repeat" | "rename";
  value: Json;
}
const change: fc.Arbitrary<Change> = fc.record({
  steps: fc.array(fc.nat(5000), { minLength: 1, maxLength: 6 }),
  kind: fc.constantFrom("replace", "remove", "repeat", "rename"),
  value: hostileValue,
});

/** Changes one place of a JSON value, found by walking down by `steps`. */
function mutate(json: Json, { steps, kind, value }: Change): Json {
  const [step = 0, ...rest] = steps;
  if (json === null || typeof json !== "object") return value;
  const entries = Object.entries(json);
  const at = entries.length === 0 ? 0 : step % entries.length;
  const [key, old] = entries[at] ?? ["x", null];
  if (rest.length > 0 && old !== null && typeof old === "object")
    entries[at] = [key, mutate(old, { steps: rest, kind, value })];
  else if (kind === "remove") entries.splice(at, 1);
  else if (kind === "repeat") entries.push([`${key} `, old]);
  else if (kind === "rename") entries[at] = [String(value), old];
  else entries[at] = [key, value];
  return Array.isArray(json) ? entries.map(([, item]) => item) : Object.fromEntries(entries);
}

const read = (name: string, from = tiny4bit): Json => JSON.parse(readFileSync(join(from, name), "utf8"));
const options = { seed: 3, interruptAfterTimeLimit: 40_000, markInterruptAsFailure: false };
const MOST_MS = 20_000;

async function inTime(act: () => unknown): Promise<void> {
  const begin = performance.now();
  try {
    await act();
  } catch (error) {
    typed(error);
  }
  expect(performance.now() - begin).toBeLessThan(MOST_MS);
}

const hi: ChatMessage[] = [{ role: "user", content: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab é 12" }];
const changes = fc.array(change, { minLength: 1, maxLength: 3 });

describe("mutated files give typed errors, in little time", () => {
  it("tokenizer.json and tokenizer_config.json", async () => {
    const folder = temporary();
    const original = { tokenizer: read("tokenizer.json"), config: read("tokenizer_config.json") };
    await fc.assert(
      fc.asyncProperty(changes, changes, async (inTokenizer, inConfig) => {
        writeFileSync(join(folder, "tokenizer.json"), JSON.stringify(inTokenizer.reduce(mutate, original.tokenizer)));
        writeFileSync(
          join(folder, "tokenizer_config.json"),
          JSON.stringify(inConfig.reduce(mutate, { ...(original.config as object), chat_template: "{{ messages }}" })),
        );
        await inTime(() => {
          const tokenizer = new Tokenizer(folder, { maxSteps: 2 ** 20 });
          const ids = tokenizer.encode(`${hi[0]?.content}<|im_end|>`);
          tokenizer.decode(ids);
          if (tokenizer.hasChatTemplate) tokenizer.chat(hi);
        });
      }),
      { ...options, numRuns: repeated(200) },
    );
  }, 120_000);

  it("config.json, generation_config.json and the index, of both checkpoints", async () => {
    const names = ["config.json", "generation_config.json", "model.safetensors.index.json"];
    const folders = [withConfig(() => {}), withConfig(() => {}, tiny4bit)];
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...names), fc.constantFrom(0, 1), changes, async (name, which, mutations) => {
        const from = [tiny, tiny4bit][which] as string;
        const folder = folders[which] as string;
        if (from === tiny && name.includes("index")) return;
        const path = join(folder, name);
        if (name.includes("index"))
          cpSync(join(from, "model.safetensors"), join(folder, "model-00001-of-00001.safetensors"));
        writeFileSync(path, JSON.stringify(mutations.reduce(mutate, read(name, from))));
        await inTime(async () => {
          using model = await loadModel(device, folder);
          for await (const _ of generate(model, [1, 2, 3], { maxTokens: 1 }));
        });
        cpSync(join(from, name), path);
        rmSync(join(folder, "model-00001-of-00001.safetensors"), { force: true });
      }),
      { ...options, numRuns: repeated(120) },
    );
  }, 120_000);

  it("bytes of any file", async () => {
    const folder = withConfig(() => {}, tiny4bit);
    writeFileSync(join(folder, "chat_template.jinja"), "{% for m in messages %}{{ m.content }}{% endfor %}");
    const names = [
      "tokenizer.json",
      "tokenizer_config.json",
      "config.json",
      "generation_config.json",
      "chat_template.jinja",
    ];
    const originals = new Map(names.map((name) => [name, readFileSync(join(folder, name))]));
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...names),
        fc.array(fc.tuple(fc.nat(1_000_000), fc.constantFrom(0, 0x22, 0x27, 0x28, 0x5b, 0x5c, 0x7b, 0x7d, 0xff)), {
          minLength: 1,
          maxLength: 4,
        }),
        fc.boolean(),
        async (name, places, cut) => {
          const bytes = Buffer.from(originals.get(name) as Buffer);
          for (const [place, byte] of places) bytes[place % bytes.length] = byte;
          writeFileSync(
            join(folder, name),
            cut ? bytes.subarray(0, (places[0] as [number, number])[0] % bytes.length) : bytes,
          );
          await inTime(async () => {
            const tokenizer = new Tokenizer(folder, { maxSteps: 2 ** 20 });
            tokenizer.encode(tokenizer.chat(hi));
            (await loadModel(device, folder)).dispose();
          });
          writeFileSync(join(folder, name), originals.get(name) as Buffer);
        },
      ),
      { ...options, numRuns: repeated(150) },
    );
  }, 120_000);

  it("chat templates of random words", async () => {
    const folder = temporary();
    cpSync(join(tiny, "tokenizer.json"), join(folder, "tokenizer.json"));
    const words =
      "{% %} {{ }} {%- -%} {# #} for in endfor if elif else endif set endset macro endmacro call endcall filter endfilter m messages loop range namespace ns . , | ( ) [ ] : = == ~ + - * ** // 'a' \"b\" 99999 1 not and or is defined tojson join indent replace split items content role caller break continue true none".split(
        " ",
      );
    await fc.assert(
      fc.asyncProperty(fc.array(fc.constantFrom(...words), { maxLength: 40 }), async (parts) => {
        writeFileSync(join(folder, "chat_template.jinja"), parts.join(" "));
        await inTime(() => new Tokenizer(folder, { maxSteps: 2 ** 20 }).chat(hi));
      }),
      { ...options, numRuns: repeated(300) },
    );
  }, 120_000);
});

describe("token ids of tokenizer.json", () => {
  const base = read("tokenizer.json", tiny) as { model: { vocab: Record<string, unknown> }; added_tokens: unknown[] };
  const withIds = (change: (json: typeof base) => void): string => {
    const folder = temporary();
    const json = structuredClone(base);
    change(json);
    writeFileSync(join(folder, "tokenizer.json"), JSON.stringify(json));
    return folder;
  };

  it.each([
    [-1, "have ids that are integers from 0 to 16777215, got -1 for"],
    [1.5, "have ids that are integers from 0 to 16777215, got 1.5 for"],
    [2 ** 32, "have ids that are integers from 0 to 16777215, got 4294967296 for"],
    ["7", 'have ids that are integers from 0 to 16777215, got "7" for'],
    [5, "give each id once, got 5 for"],
  ])("%j is refused in the vocabulary and among the added tokens", (id, message) => {
    for (const [where, folder] of [
      ["model.vocab", withIds(({ model }) => Object.assign(model.vocab, { zzzz: id }))],
      ["added_tokens", withIds((json) => json.added_tokens.push({ id, content: "<zzzz>", special: true }))],
    ]) {
      const path = join(folder as string, "tokenizer.json");
      expect(() => new Tokenizer(folder as string)).toThrow(
        expect.objectContaining({
          code: "Io",
          message: expect.stringContaining(`${path}: \`${where}\` must ${message}`),
        }),
      );
    }
  });

  it("a token that is given twice must have one id", () => {
    const twice = withIds((json) => json.added_tokens.push({ id: 5000, content: "<|im_end|>", special: true }));
    expect(() => new Tokenizer(twice)).toThrow('give each token one id, got 2 and 5000 for "<|im_end|>"');
  });

  it("beyond the model's vocabulary are refused by the model", async () => {
    const folder = withIds((json) => json.added_tokens.push({ id: 4096, content: "<far>", special: true }));
    const ids = new Tokenizer(folder).encode("a<far>");
    expect(ids.at(-1)).toBe(4096);
    using model = await loadModel(device, tiny);
    await expect(generate(model, ids).next()).rejects.toThrow(
      "generate: `ids` must be integers from 0 to 4095, got 4096 at position 1",
    );
  });
});

describe("steps of tokenizer.json", () => {
  const base = read("tokenizer.json", tiny) as Record<string, unknown>;
  const withSteps = (steps: Record<string, unknown>): Tokenizer => {
    const folder = temporary();
    writeFileSync(join(folder, "tokenizer.json"), JSON.stringify({ ...base, ...steps }));
    return new Tokenizer(folder);
  };
  const plain = new Tokenizer(tiny);

  it("replace by plain texts, with `$` signs too", () => {
    for (const content of ["$'", "$`", "$&", "$1", "$$", "$<n>", "$", "costs $5"]) {
      const pattern = content === "$1" ? { Regex: "(?=(.*))x" } : { String: "x" };
      const tokenizer = withSteps({ normalizer: { type: "Replace", pattern, content } });
      expect(tokenizer.encode("a x b x c")).toEqual(plain.encode(`a ${content} b ${content} c`));
    }
    const decoder = {
      type: "Sequence",
      decoders: [base.decoder, { type: "Replace", pattern: { String: "x" }, content: "$&$&" }],
    };
    expect(withSteps({ decoder }).decode(plain.encode("axb"))).toBe("a$&$&b");
    expect(() => withSteps({ pre_tokenizer: { type: "Metaspace", replacement: "$'" } })).toThrow(
      "`pre_tokenizer.replacement` must be one character",
    );
  });

  it("that lengthen a text much take short texts only", () => {
    const content = "x".repeat(16_000);
    const tokenizer = withSteps({ normalizer: { type: "Replace", pattern: { Regex: "[ab]" }, content } });
    expect(() => tokenizer.encode("ba".repeat(10))).not.toThrow();
    expect(() => tokenizer.encode("ba".repeat(10_000))).toThrow(
      expect.objectContaining({
        code: "LimitExceeded",
        message: expect.stringContaining(
          "encoding 20000 characters would take too much memory with this tokenizer: give it in parts",
        ),
      }),
    );
  });

  it("unknown ids are left out of decoded texts", () => {
    const metaspace = withSteps({ decoder: { type: "Metaspace", replacement: "Ġ" } });
    for (const tokenizer of [plain, metaspace]) {
      const ids = plain.encode("export class");
      expect(tokenizer.decode([...ids, 5000, 4_000_000_000])).toBe("export class");
      expect(tokenizer.decode([5000])).toBe("");
    }
  });
});

describe("wrong arguments", () => {
  const tokenizer = new Tokenizer(tiny);
  const stream = new TextStream(tokenizer);
  const garbage: unknown[] = [
    undefined,
    null,
    7,
    Number.NaN,
    10n,
    true,
    {},
    [],
    [[]],
    () => 1,
    Symbol("s"),
    new Map(),
    "\0",
    "",
  ];
  const calls: Record<string, (value: never) => unknown> = {
    "tokenizer.encode": (value) => tokenizer.encode(value),
    "tokenizer.encode with": (value) => tokenizer.encode("a", value),
    "tokenizer.encode adding": (value) => tokenizer.encode("a", { specialTokens: value }),
    "tokenizer.encode parsing": (value) => tokenizer.encode("a", { parse: value }),
    "tokenizer.encodeAsync": (value) => tokenizer.encodeAsync(value),
    "tokenizer.encodeChat": (value) => tokenizer.encodeChat(value),
    "tokenizer.encodeChat variables": (value) => tokenizer.encodeChat([], value),
    "tokenizer.encodeChat options": (value) => tokenizer.encodeChat([], {}, value),
    "tokenizer.idOf": (value) => tokenizer.idOf(value),
    "tokenizer.decode with": (value) => tokenizer.decode([1], value),
    "tokenizer.decode": (value) => tokenizer.decode(value),
    "tokenizer.decode of": (value) => tokenizer.decode([value]),
    "tokenizer.chat": (value) => tokenizer.chat(value),
    "tokenizer.chat variables": (value) => tokenizer.chat([], value),
    "tokenizer.chat options": (value) => tokenizer.chat([], {}, value),
    "new Tokenizer": (value) => new Tokenizer(value),
    "Tokenizer options": (value) => new Tokenizer(tiny, value),
    "Tokenizer limit": (value) => new Tokenizer(tiny, { maxSteps: value }),
    TextStream: (value) => new TextStream(value),
    "stream.push": (value) => stream.push(value),
    readJson: (value) => readJson(value),
    "readOptionalJson in": (value) => readOptionalJson(value, "config.json"),
    readOptionalJson: (value) => readOptionalJson(tiny, value),
    loadModel: (value) => loadModel(device, value),
    "loadModel on": (value) => loadModel(value, tiny),
    "loadModel with": async (value) => (await loadModel(device, tiny, value)).dispose(),
    "loadModel as": async (value) => (await loadModel(device, tiny, { activationDtype: value })).dispose(),
    "loadModel telling": async (value) => (await loadModel(device, tiny, { onProgress: value })).dispose(),
    "loadModel until": async (value) => (await loadModel(device, tiny, { signal: value })).dispose(),
    "quantizeCheckpoint of": (value) => quantizeCheckpoint(device, value, join(temporary(), "out")),
    "quantizeCheckpoint on": (value) => quantizeCheckpoint(value, tiny, join(temporary(), "out")),
    "quantizeCheckpoint with": (value) => quantizeCheckpoint(device, tiny, join(temporary(), "out"), value),
  };

  it.each(Object.keys(calls))("%s", async (name) => {
    for (const value of garbage)
      try {
        await calls[name]?.(value as never);
      } catch (error) {
        typed(error);
      }
  });

  it("with exact texts", () => {
    for (const [call, message] of [
      [() => tokenizer.encode(undefined as never), "tokenizer.encode: `text` must be a string, got undefined"],
      [() => tokenizer.decode("ab" as never), "tokenizer.decode: `ids` must be an array of token ids, got ab"],
      [() => tokenizer.decode([1, -1]), "tokenizer.decode: `ids` must be integers ≥ 0, got -1 at position 1"],
      [() => tokenizer.chat("hi" as never), "tokenizer.chat: `messages` must be an array of messages, got hi"],
      [() => new TextStream({} as never), "TextStream: `tokenizer` must be a Tokenizer, got Object"],
      [() => stream.push(0.5), "textStream.push: `id` must be an integer ≥ 0, got 0.5"],
      [() => new Tokenizer(join(tiny, "none")), `Tokenizer: ${join(tiny, "none")} does not exist`],
      [() => readJson(7 as never), "readJson: `path` must be a string, got 7"],
    ] as const)
      expect(call).toThrow(message);
  });
});
