// Generated from the declarations of kernels; `npm run gen` rewrites it.
#include "contract.h"

MLXTS_CONTRACT(moe_combine, 2473908785u)
MLXTS_CONTRACT(moe_places, 1237339338u)
MLXTS_CONTRACT(moe_combine_rms_norm, 1780494440u)
MLXTS_CONTRACT(moe_keep, 1600668421u)
MLXTS_CONTRACT(moe_order, 3789648312u)
MLXTS_CONTRACT(moe_pages, 1203001304u)
MLXTS_CONTRACT(moe_route, 2156390995u)
