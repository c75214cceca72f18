export {
  type ArgumentFault,
  ArgumentRangeError,
  ArgumentTypeError,
  type CommandBufferCause,
  type ErrorCode,
  MlxtsError,
} from "@mlxts/common/errors";
export type { TemplateFiles } from "./chat_template.ts";
export { TextStream } from "./text_stream.ts";
export {
  type ChatMessage,
  type ChatOptions,
  Tokenizer,
  type TokenizerFiles,
  type TokenizerOptions,
} from "./tokenizer.ts";
