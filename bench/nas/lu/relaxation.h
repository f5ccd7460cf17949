/* A step of LU. */
#pragma once

#include "nas/lu/pencil.h"

/* Solves for the change of u by one relaxation there and back, and adds it to u. The right-hand
 * side must be that of u. */
void lu_relax(struct pencil *pencil);
