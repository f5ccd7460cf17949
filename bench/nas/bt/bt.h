/* BT: three sweeps of block-tridiagonal systems a step (NAS-95-020, section 3.6.1). */
#pragma once

#include "nas/frame/program.h"

extern const struct program program_bt;
