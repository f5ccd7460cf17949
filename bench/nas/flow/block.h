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
#define RIGHT_HAND_SIDE_WORK 66 /* for each point */

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

/* How much work that is: see run_work. */
static inline double block_right_hand_side_work(const struct block *block)
{
    double points = 1;

    for (int d = 0; d < DIRECTIONS; d++)
        points *= block->end[d] - block->begin[d];
    return RIGHT_HAND_SIDE_WORK * points;
}

/* The results of a run, by component. */
struct norms {
    double residual[COMPONENTS]; /* the right-hand side */
    double error[COMPONENTS];    /* the distance from the steady solution */
};

/* Adds up the squares, inside the boundary; the right-hand side must be that of u. */
void block_add_squares(const struct block *block, const struct flow *flow, struct norms *sums);

/* From the sums of this rank's blocks: holds the roots of the means over the grid against the
 * published ones. Collective. */
void flow_check(struct run *run, const struct flow *flow, const struct norms *sums,
                const struct norms *published);

/* Copies the points in [low, high) of the five arrays to a buffer, or back. Returns how many. */
ptrdiff_t block_pack(const struct block *block, double *const fields[COMPONENTS],
                     const int low[DIRECTIONS], const int high[DIRECTIONS], double *buffer);
ptrdiff_t block_unpack(const struct block *block, double *const fields[COMPONENTS],
                       const int low[DIRECTIONS], const int high[DIRECTIONS], const double *buffer);
