/*
 * The multi-partition of BT and SP: q * q ranks cut the grid into q * q * q cells and take q each.
 * So every rank has exactly one cell in each slab of cells across each direction. A sweep along a
 * direction then keeps all ranks busy at every step. All cells that follow those of a rank along a
 * direction belong to one other rank.
 */
#pragma once

#include "nas/flow/block.h"
#include "nas/flow/vector.h"

struct partition {
    struct run *run;
    struct flow flow;
    int side; /* q */
    /* The ranks that have the cells before and after this rank's. */
    int before[DIRECTIONS];
    int after[DIRECTIONS];
    struct block *cells;
    int *slabs[DIRECTIONS]; /* which cell is in the slab of that number */

    double *faces[2 * DIRECTIONS][2]; /* messages: to and from before, after along x, y, z */
    int face_doubles[2 * DIRECTIONS];

    /* Of sweeps, see sweep.h. */
    double *kept;
    size_t kept_doubles; /* of each slab */
    double *gathered;
    double *borders[4]; /* two messages that come, and two that go */
};

/* What a method of solving lines needs: see sweep.h. */
struct line_method;

/* The plan of a job with this many points; -1 if the cells get too small. */
int partition_plan(const struct job *job, int points, const struct line_method *method,
                   struct plan *plan, struct failure *failure);

void partition_make(struct partition *partition, struct run *run, struct flow flow,
                    const struct line_method *method);

/* Sets all cells to the initial values. */
void partition_initialize(struct partition *partition);

/* Brings the points next to each cell up to date. */
void partition_exchange(struct partition *partition);

/* That, and the right-hand side of all cells. */
void partition_right_hand_side(struct partition *partition, block_finish *finish);

/* Holds residual and error against the published values. */
void partition_check(struct partition *partition, const struct norms *published);
