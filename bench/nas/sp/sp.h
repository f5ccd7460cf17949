/* SP: three sweeps of scalar pentadiagonal systems a step (NAS-95-020, section 3.6.2). */
#pragma once

#include "nas/frame/program.h"

extern const struct program program_sp;
