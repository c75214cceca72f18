// onnxruntime-node as a benchmark peer: a graph of one operator, or of copies of it, run in the same process.
import { createRequire } from "node:module";
import { join } from "node:path";
import type { Peer } from "@mlxts/core/testing";

/** Float data with a shape. */
export interface PeerTensor {
  shape: readonly number[];
  data: Float32Array | Uint8Array;
}

export interface PeerGraph {
  operator: string;
  /** What of the operator is measured, for the peer's name. */
  about?: string;
  /** Empty: the standard operators; `com.microsoft`: onnxruntime's own. */
  domain?: string;
  attributes?: Record<string, { int: number } | { float: number } | { text: string }>;
  /** In the operator's order; an empty name skips one. Weights are constants of the graph, feeds arrive with each call. */
  inputs: readonly string[];
  feeds: Record<string, PeerTensor>;
  weights?: Record<string, PeerTensor>;
  outputs: Record<string, readonly number[]>;
  /** So many nodes of the same feeds, each with the weights of `weightsOf` beside its place: more than the caches hold. */
  copies?: number;
  weightsOf?: (copy: number) => Record<string, PeerTensor>;
}

// The few protobuf messages of an ONNX model (onnx.proto3): field numbers are the format's.
const varint = (value: number): number[] => {
  const bytes: number[] = [];
  let rest = BigInt.asUintN(64, BigInt(value));
  for (; rest > 127n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128);
  return [...bytes, Number(rest)];
};
const integer = (field: number, value: number) => Buffer.from([...varint(field << 3), ...varint(value)]);
const bytes = (field: number, value: Uint8Array | string) => {
  const data = Buffer.from(value);
  return Buffer.concat([Buffer.from([...varint((field << 3) | 2), ...varint(data.length)]), data]);
};
const float = (field: number, value: number) => {
  const data = Buffer.alloc(4);
  data.writeFloatLE(value);
  return Buffer.concat([Buffer.from(varint((field << 3) | 5)), data]);
};

const FLOAT = 1;
const UINT8 = 2;
const typeOf = ({ data }: PeerTensor) => (data instanceof Uint8Array ? UINT8 : FLOAT);

function attribute(name: string, value: { int: number } | { float: number } | { text: string }): Buffer {
  if ("int" in value) return Buffer.concat([bytes(1, name), integer(3, value.int), integer(20, 2)]);
  if ("float" in value) return Buffer.concat([bytes(1, name), float(2, value.float), integer(20, 1)]);
  return Buffer.concat([bytes(1, name), bytes(4, value.text), integer(20, 3)]);
}

function valueInfo(name: string, type: number, shape: readonly number[]): Buffer {
  const dims = Buffer.concat(shape.map((dim) => bytes(1, integer(1, dim))));
  return Buffer.concat([bytes(1, name), bytes(2, bytes(1, Buffer.concat([integer(1, type), bytes(2, dims)])))]);
}

function initializer(name: string, tensor: PeerTensor): Buffer {
  const raw = new Uint8Array(tensor.data.buffer, tensor.data.byteOffset, tensor.data.byteLength);
  return Buffer.concat([
    ...tensor.shape.map((dim) => integer(1, dim)),
    integer(2, typeOf(tensor)),
    bytes(8, name),
    bytes(9, raw),
  ]);
}

/** The tensors of one of the nodes have its place in their names, unless they are the graph's feeds. */
const nameIn = (copy: number, name: string) => (name === "" ? "" : `${name}.${copy}`);

function encodeNode({ operator, domain, attributes = {}, inputs, feeds, outputs }: PeerGraph, copy: number): Buffer {
  return Buffer.concat([
    ...inputs.map((name) => bytes(1, name in feeds ? name : nameIn(copy, name))),
    ...Object.keys(outputs).map((name) => bytes(2, nameIn(copy, name))),
    bytes(3, nameIn(copy, operator)),
    bytes(4, operator),
    ...Object.entries(attributes).map(([name, value]) => bytes(5, attribute(name, value))),
    ...(domain ? [bytes(7, domain)] : []),
  ]);
}

function encodeModel(peer: PeerGraph): Buffer {
  const { feeds, weights = {}, outputs, copies = 1, weightsOf = () => weights } = peer;
  const places = Array.from({ length: copies }, (_, copy) => copy);
  const graph = Buffer.concat([
    ...places.map((copy) => bytes(1, encodeNode(peer, copy))),
    bytes(2, "peer"),
    ...places.flatMap((copy) =>
      Object.entries(weightsOf(copy)).map(([name, tensor]) => bytes(5, initializer(nameIn(copy, name), tensor))),
    ),
    ...Object.entries(feeds).map(([name, tensor]) => bytes(11, valueInfo(name, typeOf(tensor), tensor.shape))),
    ...places.flatMap((copy) =>
      Object.entries(outputs).map(([name, shape]) => bytes(12, valueInfo(nameIn(copy, name), FLOAT, shape))),
    ),
  ]);
  const opset = (name: string, version: number) => bytes(8, Buffer.concat([bytes(1, name), integer(2, version)]));
  return Buffer.concat([integer(1, 10), bytes(2, "mlxts"), bytes(7, graph), opset("", 23), opset("com.microsoft", 1)]);
}

interface Runtime {
  Tensor: new (type: string, data: Float32Array | Uint8Array, shape: readonly number[]) => unknown;
  InferenceSession: {
    create(model: Uint8Array, options: object): Promise<{ run(feeds: Record<string, unknown>): Promise<unknown> }>;
  };
}

/** A package beside the program that runs or in a folder of NODE_PATH; undefined when there is none. */
function installed(name: string): unknown {
  try {
    return createRequire(join(process.cwd(), "any.js"))(name);
  } catch {
    return undefined;
  }
}

/** A peer that runs one operator of onnxruntime-node; absent when the package is not installed. */
export function onnxPeer(graph: PeerGraph): Peer {
  return {
    name: `onnxruntime ${graph.operator}${graph.about ? `, ${graph.about}` : ""}`,
    ...(graph.copies !== undefined && { calls: graph.copies }),
    async setup(threads) {
      const runtime = installed("onnxruntime-node") as Runtime | undefined;
      if (!runtime) return undefined;
      const { InferenceSession, Tensor } = runtime;
      const options = {
        intraOpNumThreads: threads,
        interOpNumThreads: 1,
        executionProviders: ["cpu"],
        logSeverityLevel: 3,
      };
      const session = await InferenceSession.create(encodeModel(graph), options);
      const feeds = Object.fromEntries(
        Object.entries(graph.feeds).map(([name, tensor]) => [
          name,
          new Tensor(typeOf(tensor) === FLOAT ? "float32" : "uint8", tensor.data, tensor.shape),
        ]),
      );
      return () => session.run(feeds);
    },
  };
}
