/* The right-hand side of MG: +1 at ten points of the cube, -1 at ten others, 0 elsewhere. */
#pragma once

#include "nas/mg/box.h"

/* Of random numbers for all points, those are the ten largest and the ten smallest. Collective. */
void charges_place(const struct box *box, const struct lattice *lattice, int side, double *values);
