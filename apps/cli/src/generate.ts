import { existsSync } from "node:fs";
import { join } from "node:path";
import { Device } from "@mlxts/core";
import { generate, loadModel, TextStream, type Timings, Tokenizer } from "@mlxts/models";
import { type Command, Option } from "commander";
import { integer, number, tokenIds } from "./options.ts";

interface Options {
  prompt?: string;
  chat?: string;
  ids?: number[];
  maxTokens: number;
  temp: number;
  topP: number;
  topK: number;
  seed: number;
  activations: "f32" | "f16" | "bf16";
  json?: boolean;
}

const perSecond = (tokens: number, ms: number) => (ms > 0 ? (tokens / ms) * 1000 : 0);

export function addGenerate(program: Command): void {
  program
    .command("generate")
    .description("continue a prompt; text is printed as it comes")
    .argument("<checkpoint>", "a checkpoint directory")
    .addOption(new Option("--prompt <text>", "text to continue").conflicts(["ids", "chat"]))
    .addOption(
      new Option("--chat <message>", "a user's message, put into the checkpoint's chat template").conflicts("ids"),
    )
    .option("--ids <ids>", "token ids to continue, separated by commas", tokenIds)
    .option("--max-tokens <n>", "stop after this many tokens", integer(1), 128)
    .option("--temp <t>", "temperature; 0 always takes the most likely token", number(0), 0)
    .option("--top-p <p>", "sample from the most likely tokens that reach this probability together", number(0, 1), 1)
    .option("--top-k <k>", "sample from the k most likely tokens; 0: all", integer(0), 0)
    .option("--seed <n>", "seed of the sampling", integer(0, 0xffffffff), 0)
    .addOption(
      new Option("--activations <dtype>", "dtype of activations").choices(["f32", "f16", "bf16"]).default("f32"),
    )
    .option("--json", "print one JSON object with ids, text and timings")
    .action(async (directory: string, options: Options, command: Command) => {
      if (options.prompt === undefined && options.ids === undefined && options.chat === undefined)
        command.error("error: give --prompt, --chat or --ids", { exitCode: 2 });
      using device = Device.open();
      const model = await loadModel(device, directory, { activations: options.activations });
      // With --ids the text is an extra: a checkpoint without tokenizer still runs.
      const tokenizer = options.ids === undefined || hasTokenizer(directory) ? new Tokenizer(directory) : undefined;
      const text =
        options.chat === undefined ? options.prompt : tokenizer?.chat([{ role: "user", content: options.chat }]);
      const prompt = options.ids ?? (tokenizer as Tokenizer).encode(text as string);
      const timings: Partial<Timings> = {};
      const stream = tokenizer && new TextStream(tokenizer);
      const ids: number[] = [];
      let out = "";
      const print = (piece: string) => {
        out += piece;
        if (!options.json) process.stdout.write(piece);
      };
      const sampling = { temperature: options.temp, topK: options.topK, topP: options.topP, seed: options.seed };
      for await (const id of generate(model, prompt, { ...sampling, maxTokens: options.maxTokens, timings })) {
        ids.push(id);
        print(stream ? stream.push(id) : `${ids.length > 1 ? "," : ""}${id}`);
      }
      if (stream) print(stream.end());
      const { promptTokens = 0, prefillMs = 0, generatedTokens = 0, decodeMs = 0 } = timings;
      const speed = {
        prefillTokensPerSecond: perSecond(promptTokens, prefillMs),
        decodeTokensPerSecond: perSecond(Math.max(0, generatedTokens - 1), decodeMs),
      };
      if (options.json) {
        const report = {
          prompt: text ?? null,
          promptIds: prompt,
          ids,
          text: out,
          timings: { promptTokens, prefillMs, generatedTokens, decodeMs, ...speed },
        };
        process.stdout.write(`${JSON.stringify(report)}\n`);
      } else {
        process.stdout.write("\n");
        process.stderr.write(
          `\nprefill ${promptTokens} tokens, ${speed.prefillTokensPerSecond.toFixed(0)} tokens/s; decode ${generatedTokens} tokens, ${speed.decodeTokensPerSecond.toFixed(0)} tokens/s\n`,
        );
      }
      model.dispose();
    });
}

function hasTokenizer(directory: string): boolean {
  return existsSync(join(directory, "tokenizer.json"));
}
