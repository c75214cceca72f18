// Generated from the declarations of kernels; `npm run gen` rewrites it.
#include "contract.h"

MLXTS_CONTRACT(peak_multiply, 2387009606u)
MLXTS_CONTRACT(peak_read, 369111182u)
