/* CG: the smallest eigenvalue of a random sparse matrix (NAS-95-020, section 2.4). */
#pragma once

#include "nas/frame/program.h"

extern const struct program program_cg;
