/* IS: ranking integer keys (NAS-95-020, section 2.7). */
#pragma once

#include "nas/frame/program.h"

extern const struct program program_is;
