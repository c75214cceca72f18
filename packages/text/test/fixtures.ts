import { fileURLToPath } from "node:url";
import { temporaryFolder } from "@mlxts/test-kit/temporary_folder";

export const tiny = fileURLToPath(new URL("../../../fixtures/tiny-qwen3.5", import.meta.url));
export const temporary = () => temporaryFolder("text");
