/* FT: a diffusion equation by three-dimensional Fourier transforms (NAS-95-020, section 2.6). */
#pragma once

#include "nas/frame/program.h"

extern const struct program program_ft;
