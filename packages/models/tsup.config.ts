export { default } from "../../scripts/tsup.ts";
