/*
 * A sweep solves all lines of the grid along one direction: elimination from the first cell of
 * each line to the last, substitution back. LANES lines are solved side by side, on vectors.
 *
 * The method sees one batch of lines in one cell at a time. What it keeps of each point from
 * elimination to substitution, and what crosses the border of cells, are numbers for each line:
 * `LANES` of them next to each other, and those `count` times.
 */
#pragma once

#include "nas/flow/partition.h"

/* A batch of lines inside a cell. */
struct lines {
    const struct block *block;
    const struct flow *flow;
    int direction;
    int begin; /* first point along the direction that is solved for */
    int end;
    ptrdiff_t step;
    int count;           /* lines; the other lanes repeat the last one */
    ptrdiff_t at[LANES]; /* where each line has its point 0 */
    bool adjacent;       /* the lines are next to each other in memory */
    double *gathered;    /* for the method's use */
};

struct line_method {
    int kept;              /* of each point, from elimination to substitution */
    int ahead;             /* that elimination takes into the next cell */
    int back;              /* that substitution takes into the cell before */
    int gathered;          /* of each point, while a batch is eliminated or substituted */
    double eliminate_work; /* for each point: see run_work */
    double substitute_work;
    /* `kept` starts at point `begin`. `border` has what came from the cell before, or zeros; then
     * what goes on. */
    void (*eliminate)(const struct lines *lines, vector *kept, vector *border);
    /* `border` is what came from the cell after, or zeros; then what goes on. */
    void (*substitute)(const struct lines *lines, vector *kept, vector *border);
};

void sweep(struct partition *partition, const struct line_method *method, int direction);

/* Copies a line's points [begin, end) of an array, of each lane: point i goes to
 * to[(i - begin) * stride], in doubles. */
void lines_gather(const struct lines *lines, const double *field, int begin, int end, double *to,
                  ptrdiff_t stride);
/* The other way round, for the lines that are there. */
void lines_scatter(const struct lines *lines, double *field, int begin, int end, const double *from,
                   ptrdiff_t stride);
