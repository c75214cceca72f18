export { lfsPointer, openForReading, readPlainFile } from "@mlxts/common/files";
