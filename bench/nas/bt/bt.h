/* BT: three sweeps of block-tridiagonal systems a step (NAS-95-020, chapter 3). */
#pragma once

#include "nas/frame/program.h"

extern const struct program program_bt;
