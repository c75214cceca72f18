// Generated from the declarations of kernels; `npm run gen` rewrites it.
#include "contract.h"

MLXTS_CONTRACT(head_attention, 683617300u)
MLXTS_CONTRACT(head_dots, 4272794929u)
MLXTS_CONTRACT(head_matmul, 1530097638u)
MLXTS_CONTRACT(head_rows, 363061837u)
MLXTS_CONTRACT(mla_merge, 386613557u)
MLXTS_CONTRACT(mla_pieces, 2004523260u)
MLXTS_CONTRACT(mla_tiles, 4059125673u)
MLXTS_CONTRACT(mla_cache_append, 1692952281u)
MLXTS_CONTRACT(mla_split, 3997820627u)
MLXTS_CONTRACT(rope_yarn, 1268041943u)
