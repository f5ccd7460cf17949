/* EP: pairs of normal random numbers, and nothing to talk about (NAS-95-020, section 2.2). */
#pragma once

#include "nas/frame/program.h"

extern const struct program program_ep;
