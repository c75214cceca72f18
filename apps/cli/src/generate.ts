import { Device, wrongValue } from "@mlxts/core";
import {
  type Ending,
  generate,
  type LanguageModel,
  type SamplingOptions,
  TextStream,
  type Timings,
  Tokenizer,
} from "@mlxts/models";
import { activationDtype, approximate, noMap } from "./activation_option.ts";
import { argument, command } from "./contract.ts";
import { Interrupted } from "./interrupt.ts";
import { hasTokenizer, loadModelWithBar } from "./load_model.ts";
import { flag, integer, number, text, tokenIds } from "./options.ts";

const perSecond = (tokens: number, ms: number) => (ms > 0 ? (tokens / ms) * 1000 : 0);

function speedOf({ promptTokens = 0, prefillMs = 0, generatedTokens = 0, decodeMs = 0 }: Partial<Timings>) {
  return {
    promptTokens,
    prefillMs,
    generatedTokens,
    decodeMs,
    prefillTokensPerSecond: perSecond(promptTokens, prefillMs),
    decodeTokensPerSecond: perSecond(Math.max(0, generatedTokens - 1), decodeMs),
  };
}

const summaryOf = (speed: ReturnType<typeof speedOf>) =>
  `prefill ${speed.promptTokens} tokens, ${speed.prefillTokensPerSecond.toFixed(0)} tokens/s; ` +
  `decode ${speed.generatedTokens} tokens, ${speed.decodeTokensPerSecond.toFixed(0)} tokens/s`;

interface SamplingFlags {
  temp: number | undefined;
  topP: number | undefined;
  topK: number | undefined;
  seed: number;
}

/** The sampling options that were given: what is left out is the checkpoint's. */
const samplingOf = ({ temp, topP, topK, seed }: SamplingFlags): SamplingOptions => ({
  ...(temp !== undefined && { temperature: temp }),
  ...(topP !== undefined && { topP }),
  ...(topK !== undefined && { topK }),
  seed,
});

/** Why the text ended, by the names of the command line. */
function endText({ finishReason }: Partial<Ending>, generated: number, maxTokens: number): string {
  if (finishReason === "stop") return "ended by a stop token";
  if (finishReason === "length")
    return generated === maxTokens ? `ended by --max-tokens ${maxTokens}` : "ended by the end of the model's context";
  return "interrupted";
}

export const generateCommand = command({
  name: "generate",
  summary: "Continue a prompt; text is printed as it comes, and speeds on standard error.",
  arguments: { checkpoint: argument("a checkpoint directory") },
  options: {
    prompt: text("<text>", "text to continue"),
    chat: text("<message>", "a user's message, put into the checkpoint's chat template"),
    ids: tokenIds("token ids to continue, separated by commas"),
    maxTokens: integer("<n>", "stop after this many tokens", { min: 1, default: 128 }),
    temp: number("<t>", "temperature, 0 takes the most likely token; default: the checkpoint's, else 0", { min: 0 }),
    topP: number("<p>", "sample from the likeliest tokens of this probability; default: the checkpoint's, else 1", {
      min: 0,
      above: true,
      max: 1,
    }),
    topK: integer("<k>", "sample from the k likeliest tokens, 0 from all; default: the checkpoint's, else 0", {
      min: 0,
    }),
    seed: integer("<n>", "seed of the sampling", { min: 0, max: 0xffffffff, default: 0 }),
    activationDtype,
    approximate,
    noMap,
    expertMemory: integer("<bytes>", "memory that experts may take, for a model that is larger than memory", {
      min: 1,
    }),
    json: flag("print one JSON object with ids, text and timings, at the end"),
  },
  exactlyOne: ["prompt", "chat", "ids"],
  async run(
    { checkpoint, prompt, chat, ids, maxTokens, activationDtype, approximate, noMap, expertMemory, json, ...sampling },
    signal,
  ) {
    using device = Device.open();
    using model: LanguageModel = await loadModelWithBar(device, checkpoint, {
      activationDtype,
      approximate,
      map: !noMap,
      ...(expertMemory !== undefined && { expertMemory }),
      signal,
    });
    // With --ids a checkpoint without a tokenizer runs too; then ids are printed.
    const needsTokenizer = ids === undefined || hasTokenizer(checkpoint);
    const tokenizer = needsTokenizer ? new Tokenizer(checkpoint) : undefined;
    if (chat !== undefined && !tokenizer?.hasChatTemplate)
      throw wrongValue(
        "generate",
        "<checkpoint>",
        "have a chat template for --chat",
        `${checkpoint} without one`,
        "use --prompt",
      );
    const messages = chat === undefined ? undefined : [{ role: "user", content: chat }];
    const asked = messages ? tokenizer?.chat(messages) : prompt;
    const encoded = (reader: Tokenizer) => (messages ? reader.encodeChat(messages) : reader.encode(prompt as string));
    const promptIds = ids ?? encoded(tokenizer as Tokenizer);
    signal.throwIfAborted();
    const timings: Partial<Timings> = {};
    const ending: Partial<Ending> = {};
    const stream = tokenizer && new TextStream(tokenizer);
    const generated: number[] = [];
    let out = "";
    const print = (piece: string) => {
      out += piece;
      if (!json) process.stdout.write(piece);
    };
    try {
      const options = { ...samplingOf(sampling), maxTokens, timings, ending, signal };
      for await (const id of generate(model, promptIds, options)) {
        generated.push(id);
        print(stream ? stream.push(id) : `${generated.length > 1 ? "," : ""}${id}`);
      }
    } catch (error) {
      // After an interrupt the text so far and the summary are printed as after any other end.
      if (!signal.aborted) throw error;
    }
    if (stream) print(stream.end());
    // The reader of the output has gone.
    if (signal.reason instanceof Interrupted && signal.reason.exitCode === 0) return;
    const speed = speedOf(timings);
    if (json) {
      const report = { prompt: asked ?? null, promptIds, ids: generated, text: out, ...ending, timings: speed };
      process.stdout.write(`${JSON.stringify(report)}\n`);
    } else {
      process.stdout.write("\n");
      process.stderr.write(`\n${summaryOf(speed)}; ${endText(ending, generated.length, maxTokens)}\n`);
    }
  },
});
