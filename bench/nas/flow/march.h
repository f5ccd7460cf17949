/* BT and SP march through time in the same way: the right-hand side, then a sweep along each
 * direction. */
#pragma once

#include "nas/flow/sweep.h"

/* A problem class and its published results. */
struct march_class {
    int points; /* along each direction */
    int steps;
    double dt;
    struct norms norms;
};

struct march {
    const struct march_class *classes; /* CLASS_COUNT of them */
    const struct line_method *method;
    block_finish *finish; /* of the right-hand side, or NULL */
    /* What a step on a grid counts for, as in NPB. */
    double (*operations)(double points);
};

/* A program's plan and run. */
int march_plan(const struct march *march, const struct job *job, struct plan *plan,
               struct failure *failure);
void march_run(const struct march *march, struct run *run);
