// Generated from the declarations of kernels; `npm run gen` rewrites it.
#include "contract.h"

MLXTS_CONTRACT(add_rms_norm, 1348790541u)
MLXTS_CONTRACT(fused_moe_wsum_post_ff_norm2_end_layer, 3895003245u)
MLXTS_CONTRACT(fused_post_attn_triple_norm, 143888218u)
MLXTS_CONTRACT(fused_post_ff_norm2_end_layer, 3587413602u)
MLXTS_CONTRACT(gated_rms_norm, 1658495910u)
MLXTS_CONTRACT(l2_norm, 4103934344u)
MLXTS_CONTRACT(rms_norm, 2263417156u)
MLXTS_CONTRACT(rms_norm_add, 1904187913u)
MLXTS_CONTRACT(rms_norm_mul, 525653230u)
MLXTS_CONTRACT(rms_norm_no_scale, 2245814313u)
MLXTS_CONTRACT(rms_norm_no_scale_dual, 3520399286u)
MLXTS_CONTRACT(rms_norm_triple, 3929370288u)
