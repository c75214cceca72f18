import { isObject, type StepFields } from "./step_fields.ts";
import type { Work } from "./work.ts";

/** Adds special tokens to the ids of a text, unless `adds` is false. */
export type PostProcessor = (ids: number[], adds: boolean, work: Work) => number[];

const MAX_ITEMS = 256;
const MAX_IDS = 2 ** 25;

/** The id in a pair of token and id. */
function pairId(fields: StepFields, name: string): number {
  const pair = fields.list(name);
  const id = pair[1];
  if (pair.length !== 2 || typeof id !== "number" || !Number.isInteger(id) || id < 0)
    throw fields.refuse("be a token and its id", name);
  return id;
}

function template(fields: StepFields): PostProcessor {
  const single = fields.list("single");
  if (single.length > MAX_ITEMS) throw fields.refuse(`have at most ${MAX_ITEMS} items`, "single");
  const specials = fields.raw("special_tokens") ?? {};
  /** `text`: the ids of the text come here. */
  const items = single.map((item): "text" | number[] => {
    const { Sequence, SpecialToken } = isObject(item) ? item : {};
    if (isObject(Sequence) && Sequence.id === "A") return "text";
    const name = isObject(SpecialToken) ? SpecialToken.id : undefined;
    const special =
      typeof name === "string" && isObject(specials) && Object.hasOwn(specials, name) ? specials[name] : {};
    const ids = isObject(special) ? special.ids : undefined;
    if (!Array.isArray(ids) || ids.length > MAX_ITEMS || !ids.every((id) => Number.isInteger(id) && id >= 0))
      throw fields.refuse("be of sequences A and special tokens with ids", "single");
    return ids as number[];
  });
  return (ids, adds, work) => {
    const all: number[] = [];
    for (const item of items) {
      if (item !== "text" && !adds) continue;
      const more = item === "text" ? ids : item;
      work.spend(1 + more.length);
      if (all.length + more.length > MAX_IDS) throw work.exceeded("makes too many ids");
      for (const id of more) all.push(id);
    }
    return all;
  };
}

export function readPostProcessor(fields: StepFields): PostProcessor {
  switch (fields.type) {
    case "Sequence": {
      const steps = fields.steplist("processors").map(readPostProcessor);
      return (ids, adds, work) => {
        let all = ids;
        for (const step of steps) all = step(all, adds, work);
        return all;
      };
    }
    case "ByteLevel":
      // It changes offsets only.
      return (ids) => ids;
    case "BertProcessing":
    case "RobertaProcessing": {
      const first = pairId(fields, "cls");
      const last = pairId(fields, "sep");
      return (ids, adds) => (adds ? [first].concat(ids, last) : ids);
    }
    case "TemplateProcessing":
      return template(fields);
    default:
      throw fields.unsupported();
  }
}
