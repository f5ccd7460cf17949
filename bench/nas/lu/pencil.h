/* The decomposition of LU: the grid is cut along x and y, and each rank has a pencil along z. */
#pragma once

#include "nas/flow/block.h"

#define CUT_DIRECTIONS 2

/* Five numbers that a point contributes to the equations of one of its neighbours. */
struct contribution {
    double to[COMPONENTS];
};

struct pencil {
    struct run *run;
    struct flow flow;
    struct block block;
    /* Neighbours, MPI_PROC_NULL where the grid ends. */
    int before[CUT_DIRECTIONS];
    int after[CUT_DIRECTIONS];
    double *faces[CUT_DIRECTIONS][2][2]; /* messages: along x, y; before, after; out, in */

    /* Of sweeps: what comes from the plane, row and point before. */
    struct contribution *planes;  /* of each point of a plane */
    struct contribution *rows;    /* of each point of a row */
    struct contribution *columns; /* of the points before the block, one in each row */
};

int pencil_plan(const struct job *job, int points, struct plan *plan, struct failure *failure);

void pencil_make(struct pencil *pencil, struct run *run, struct flow flow);

/* Brings the points next to the block up to date, and computes the right-hand side. */
void pencil_right_hand_side(struct pencil *pencil);
