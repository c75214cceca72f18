// The instructions of PTX that order the memory accesses of a thread block, and texts without one of them.

/** Waits, and fences that make data visible to another unit of the GPU; `bar.arrive` and commits alone order nothing. */
const DELETED =
  /^\s*(?:@!?%\w+ )?(?:(?:bar|barrier)(?:\.cta)?\.(?:sync|red)|bar\.warp\.sync|cp\.async\.(?:bulk\.)?wait_(?:group|all)|wgmma\.(?:wait_group|fence)|fence\.proxy|griddepcontrol\.wait)\b[^;]*;/;
/** A loop tries this until its predicate is true. */
const TRIED = /(\bmbarrier\.(?:try|test)_wait[\w.:]*)\s+([%\w]+),[^;]*;/;

export interface OrderInstruction {
  /** Of the PTX, from 0. */
  line: number;
  text: string;
}

/** What a kernel's PTX has of them, in order. */
export function orderInstructions(ptx: string): OrderInstruction[] {
  return ptx.split("\n").flatMap((text, line) => {
    const found = DELETED.exec(text) ?? TRIED.exec(text);
    return found ? [{ line, text: found[0].trim() }] : [];
  });
}

/** The PTX in which this instruction neither waits nor orders. */
export function withoutOrder(ptx: string, { line }: OrderInstruction): string {
  const lines = ptx.split("\n");
  const text = lines[line] as string;
  lines[line] = DELETED.test(text) ? text.replace(DELETED, "") : text.replace(TRIED, "setp.eq.u32 $2, 0, 0;");
  return lines.join("\n");
}
