import type { Device } from "./api.ts";
import type { Tally } from "./counters.ts";
import type { Library } from "./library.ts";
import type { LibraryDefinition } from "./library_definition.ts";
import type { NativeMemory } from "./native.ts";
import type { SubmissionQueue } from "./submission.ts";

/** A device with what only core's own objects use of it. */
export interface DeviceCore extends Device {
  /** Work that is recorded, in flight or failed. */
  readonly submissions: SubmissionQueue;
  readonly tally: Tally;
  /** `MLXTS_DEBUG` when the device was opened. */
  readonly debug: number;
  /** Buffers whose memory an ArrayBuffer shows: disposing the device empties these. */
  readonly borrowed: Set<{ dispose(): void }>;
  /** @throws MlxtsError `BufferAllocation` */
  allocate(byteLength: number): NativeMemory;
  library(definition: LibraryDefinition): Library;
}
