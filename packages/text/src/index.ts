export {
  type ArgumentFault,
  ArgumentRangeError,
  ArgumentTypeError,
  type CommandBufferCause,
  type ErrorCode,
  MlxtsError,
} from "@mlxts/common/errors";
export type { TemplateFiles } from "./chat_template.ts";
export { opensReasoning, type ReplyOptions, ReplyParser } from "./reply/reply_parser.ts";
export type { ReplyPart } from "./reply/reply_parts.ts";
export { StopTexts } from "./reply/stop_texts.ts";
export { type ToolFormat, toolFormatOf } from "./reply/tool_formats.ts";
export type { Tool } from "./reply/tools.ts";
export { TextStream } from "./text_stream.ts";
export {
  type ChatMessage,
  type ChatOptions,
  type DecodeOptions,
  type EncodeChatOptions,
  type EncodeOptions,
  Tokenizer,
  type TokenizerFiles,
  type TokenizerOptions,
} from "./tokenizer.ts";
