/** The bytes of a safetensors file, right or wrong: `header` as an object, as text or as bytes. */
export function rawFile(
  header: unknown,
  data: Uint8Array,
  { headerBytes, pad = 0 }: { headerBytes?: bigint; pad?: number } = {},
): Uint8Array {
  const json =
    header instanceof Uint8Array
      ? header
      : new TextEncoder().encode((typeof header === "string" ? header : JSON.stringify(header)) + " ".repeat(pad));
  const out = new Uint8Array(8 + json.length + data.length);
  new DataView(out.buffer).setBigUint64(0, headerBytes ?? BigInt(json.length), true);
  out.set(json, 8);
  out.set(data, 8 + json.length);
  return out;
}
