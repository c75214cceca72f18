// Cases of mlaAttention.
import { type Case, type CaseInput, Random } from "@mlxts/core/testing";
import { type Tree, treeMask } from "./trees.ts";

interface Data {
  queries: Float64Array;
  qPe: Float64Array;
  latents: Float64Array;
  keys: Float64Array;
}

interface Shape {
  L?: number;
  H?: number;
  R?: number;
  rope?: number;
  lengths: readonly number[];
  capacity?: number;
  causal?: boolean;
  /** Of each new token, the new tokens that it sees. */
  tree?: Tree;
  scale?: number;
  cache?: CaseInput["dtype"];
  dtypes?: Case["dtypes"];
  lse?: boolean;
  name?: string;
  /** Changes the finished inputs. */
  edit?: (data: Data, capacity: number) => void;
}

/** Makes cases whose numbers do not depend on what other cases the process has made. Rows from lengths[n] on are NaN. */
export function caseMaker(): (shape: Shape) => Case {
  const random = new Random(27);
  return (shape) => makeCase(random, shape);
}

function makeCase(random: Random, shape: Shape): Case {
  const { L = 1, H = 1, R = 32, rope = 8, lengths, causal, tree, scale, cache = "act" } = shape;
  const N = lengths.length;
  const capacity = shape.capacity ?? Math.max(...lengths, L) + 3;
  const rows = (columns: number) => {
    const data = new Float64Array(N * capacity * columns).fill(Number.NaN);
    for (let n = 0; n < N; n++) data.set(random.normals((lengths[n] as number) * columns), n * capacity * columns);
    return data;
  };
  const data: Data = {
    queries: random.normals(N * L * H * R),
    qPe: random.normals(N * L * H * rope),
    latents: rows(R),
    keys: rows(rope),
  };
  shape.edit?.(data, capacity);
  const options = { softmaxScale: scale ?? (R + rope) ** -0.5, ...(causal === undefined ? {} : { causal }) };
  return {
    name: `L ${L} H ${H} R ${R} rope ${rope} lengths ${lengths} of ${capacity} cache ${cache} ${JSON.stringify(options)}${tree ? " tree" : ""} ${shape.name ?? ""}`,
    inputs: {
      queries: { dtype: "f32", shape: [N, L, H, R], data: data.queries },
      qPe: { dtype: "act", shape: [N, L, H, rope], data: data.qPe },
      latentCache: { dtype: cache, shape: [N, capacity, R], data: data.latents },
      kPeCache: { dtype: cache, shape: [N, capacity, rope], data: data.keys },
      lengths: { dtype: "i32", shape: [N], data: lengths },
      ...(tree ? { treeMask: treeMask(tree) } : {}),
    },
    options,
    ...(shape.dtypes ? { dtypes: shape.dtypes } : {}),
    ...(shape.lse === false ? {} : { ask: { lse: { dtype: "f32", shape: [N, L, H] } } }),
  };
}
