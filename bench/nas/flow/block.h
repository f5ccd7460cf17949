/*
 * A block: the part of the grid that a rank computes at once. Every quantity is an array of its
 * own, x fastest, with two more points on each side (what others compute there, or nothing), so
 * that loops along x run on vectors.
 */
#pragma once

#include "nas/flow/flow.h"
#include "nas/frame/run.h"

#include <stddef.h>

#define HALO 2

struct block {
    int size[DIRECTIONS];
    int origin[DIRECTIONS];     /* the first point, in the grid */
    int begin[DIRECTIONS];      /* the first point that is not on the boundary of the grid */
    int end[DIRECTIONS];        /* after the last such point */
    ptrdiff_t step[DIRECTIONS]; /* to the next point along a direction */

    /* Arrays start at the block's first point. */
    double *u[COMPONENTS];
    double *rhs[COMPONENTS]; /* right-hand side of a step, then what the step changes */
    double *forcing[COMPONENTS];
    double *velocity[DIRECTIONS];
    double *inverse_density;
    double *kinetic; /* half of the velocity squared */
    double *pressure;
    double *sound; /* its speed */
};

/* Points along a direction: [first, end) in the grid. */
struct span {
    int first;
    int end;
};

/* Span number `index` of `count` that share `points`; the first ones have one more. */
struct span span_of(int points, int index, int count);

/* Bytes that a block of this size takes. */
uint64_t block_bytes(const int size[DIRECTIONS]);

/* A block in the run's memory, with its forcing, at rest where the steady solution is. */
void block_make(struct block *block, struct run *run, const struct flow *flow,
                const struct span spans[DIRECTIONS]);

/* Sets u to the initial values, also at points of other blocks nearby. */
void block_initialize(struct block *block, const struct flow *flow);

static inline ptrdiff_t block_at(const struct block *block, int i, int j, int k)
{
    return i * block->step[0] + j * block->step[1] + k * block->step[2];
}

/*
 * Computes the right-hand side times dt, inside the boundary. Needs u with its halo. `finish`,
 * unless NULL, is then called for each row of points along x while that is in the cache: for the
 * point `at`, and those up to `count` after it.
 */
typedef void block_finish(const struct block *block, ptrdiff_t at, int count);
void block_right_hand_side(struct block *block, const struct flow *flow, block_finish *finish);

/* Adds up the squares of the distance from the steady solution, and of the right-hand side. */
void block_add_errors(const struct block *block, const struct flow *flow, double sums[COMPONENTS]);
void block_add_residuals(const struct block *block, double sums[COMPONENTS]);

/* From sums of all blocks of all ranks: the root of the mean square. Collective. */
void flow_norms(struct run *run, const struct flow *flow, const double sums[COMPONENTS],
                double norms[COMPONENTS]);

/* Copies the points in [low, high) of the five arrays to a buffer, or back. Returns how many. */
ptrdiff_t block_pack(const struct block *block, double *const fields[COMPONENTS],
                     const int low[DIRECTIONS], const int high[DIRECTIONS], double *buffer);
ptrdiff_t block_unpack(const struct block *block, double *const fields[COMPONENTS],
                       const int low[DIRECTIONS], const int high[DIRECTIONS], const double *buffer);
