/*
 * A rank's part of a grid: a box of points with a shell of one point around it, which copies the
 * neighbours' points (the cube is periodic). Axis 0 is contiguous in memory.
 */
#pragma once

#include "nas/frame/run.h"

#define AXES 3

/* How the ranks share the cube. */
struct lattice {
    struct run *run;
    int ranks[AXES];        /* along each axis */
    int place[AXES];        /* of this rank */
    int neighbour[AXES][2]; /* below and above; this rank itself where it is the only one */
};

struct box {
    int points[AXES]; /* without the shell */
    int width;        /* with it: of a row, */
    int height;       /* and of a plane */
    int size;
};

/* Sets the number of ranks along each axis; `ranks` is a power of two. */
void lattice_share(int ranks, int along[AXES]);

struct lattice lattice_make(struct run *run);

/* The box of a rank in a cube of `side` points, shared by `ranks` along each axis. */
struct box box_make(int side, const int ranks[AXES]);

/* Row (j, k), counted with the shell. */
static inline const double *box_row(const struct box *box, const double *values, int j, int k)
{
    return values + (ptrdiff_t)(k * box->height + j) * box->width;
}

static inline double *box_row_of(const struct box *box, double *values, int j, int k)
{
    return values + (ptrdiff_t)(k * box->height + j) * box->width;
}

/* Fills the shell from the neighbours, or from the other side if there is none: axis by axis, so
 * that edges and corners come along. `buffer` has box_buffer_count() places. */
void box_exchange(const struct box *box, const struct lattice *lattice, double *values,
                  double *buffer);

/* The same for a box that is the whole cube. */
void box_wrap(const struct box *box, double *values);

size_t box_buffer_count(const struct box *box);
