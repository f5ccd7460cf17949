/* MG: the Poisson equation on a periodic cube by multigrid (NAS-95-020, section 2.5). */
#pragma once

#include "nas/frame/program.h"

extern const struct program program_mg;
