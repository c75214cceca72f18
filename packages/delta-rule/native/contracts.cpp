// Generated from the declarations of kernels; `npm run gen` rewrites it.
#include "contract.h"

MLXTS_CONTRACT(causal_conv1d, 4246177482u)
MLXTS_CONTRACT(chunk_cumsum, 1695196683u)
MLXTS_CONTRACT(chunk_inverse, 3290345259u)
MLXTS_CONTRACT(chunk_kkt, 870906053u)
MLXTS_CONTRACT(chunk_output, 4117477679u)
MLXTS_CONTRACT(chunk_state, 3959486519u)
MLXTS_CONTRACT(chunk_wu, 4279051515u)
MLXTS_CONTRACT(conv_rollback, 4057457492u)
MLXTS_CONTRACT(delta_gates, 1832592182u)
MLXTS_CONTRACT(gated_delta_rollback, 3117195123u)
MLXTS_CONTRACT(gated_delta_rule_chunk, 701403706u)
MLXTS_CONTRACT(gated_delta_rule_recurrent, 2114161051u)
MLXTS_CONTRACT(mask_values, 2275026851u)
MLXTS_CONTRACT(qk_norm, 3219858670u)
MLXTS_CONTRACT(validate_rule, 2879745824u)
