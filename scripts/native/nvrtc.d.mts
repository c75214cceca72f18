export const VERSION: string;
/** What the translated texts include. */
export const headers: readonly string[];
/** Whether NVRTC is in this clone, of the version wanted. */
export function installed(): boolean;
/** Puts NVRTC into the clone's build folder if it is not there; throws one sentence that says what to do. */
export function install(): void;
/** As many compilers as there are processors; jobs wait for one. */
export class Compilers {
  /** The PTX of a text; rejects with the compiler's log. */
  compile(job: { name: string; text: string; options: readonly string[] }): Promise<string>;
  close(): void;
}
