/* How SP solves lines, in the variables that make the Jacobians diagonal. */
#pragma once

#include "nas/flow/sweep.h"

/* Into the variables of the first sweep; the sweeps themselves change to the next ones. */
block_finish sp_to_characteristic;

extern const struct line_method sp_method;
