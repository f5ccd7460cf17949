/* How BT solves lines: Gauss elimination with blocks. */
#pragma once

#include "nas/flow/sweep.h"

extern const struct line_method bt_method;
