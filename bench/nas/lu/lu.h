/* LU: symmetric successive over-relaxation of the whole system (NAS-95-020, chapter 3). */
#pragma once

#include "nas/frame/program.h"

extern const struct program program_lu;
