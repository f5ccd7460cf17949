/*
 * The four operators of MG (NAS-95-020, section 2.5.1), each on the points of a box; they read the
 * shell. All weigh the 27 points around each by their distance: the point itself, its 6 neighbours
 * across faces, 12 across edges, 8 across corners.
 */
#pragma once

#include "nas/mg/box.h"

/* Rows of scratch that each operator needs, of the finer box's width. */
#define STENCIL_SCRATCH_ROWS 3

/* residual = v - A u. `v` may be `residual`. */
void stencil_residual(const struct box *box, const double *u, const double *v, double *residual,
                      double *scratch);

/* u += C residual. `c`: the weights of the point, faces and edges; corners have none. */
void stencil_smooth(const struct box *box, const double *residual, double *u, const double c[3],
                    double *scratch);

/* coarse = P fine: the coarse points are every other one of the fine, from the second on. */
void stencil_restrict(const struct box *fine_box, const double *fine, const struct box *coarse_box,
                      double *coarse, double *scratch);

/* fine += Q coarse, also in the shell of the fine. */
void stencil_interpolate(const struct box *coarse_box, const double *coarse,
                         const struct box *fine_box, double *fine, double *scratch);
