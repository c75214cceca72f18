// Messages as clients of OpenAI's interface send them, in the form that chat templates are written for.

const isObject = (value: unknown): value is Record<string, unknown> =>
  value !== null && typeof value === "object" && !Array.isArray(value);

const isTextPart = (part: unknown): part is { text: string } =>
  isObject(part) && part.type === "text" && typeof part.text === "string";

/** The object of a JSON text; what is none stays as it is. */
function parsedArguments(given: unknown): unknown {
  if (typeof given !== "string") return given;
  try {
    const value: unknown = JSON.parse(given);
    return isObject(value) ? value : given;
  } catch {
    return given;
  }
}

function parsedCall(call: unknown): unknown {
  if (!isObject(call)) return call;
  const { function: called } = call;
  if (isObject(called) && "arguments" in called)
    return { ...call, function: { ...called, arguments: parsedArguments(called.arguments) } };
  return "arguments" in call ? { ...call, arguments: parsedArguments(call.arguments) } : call;
}

/**
 * A message in which the arguments of tool calls are objects, not JSON texts, and, unless `parts`, a content that consists of
 * parts of text is their text, one after the other, as mlx-lm joins them.
 */
export function templateMessage<Message extends object>(message: Message, parts: boolean): Message {
  if (message instanceof Map) return message;
  const { content, tool_calls } = message as { content?: unknown; tool_calls?: unknown };
  const changes: Record<string, unknown> = {};
  if (Array.isArray(tool_calls)) changes.tool_calls = tool_calls.map(parsedCall);
  if (!parts && Array.isArray(content) && content.length > 0 && content.every(isTextPart))
    changes.content = content.map(({ text }) => text).join("");
  return { ...message, ...changes };
}
