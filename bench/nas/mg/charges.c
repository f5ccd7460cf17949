#include "nas/mg/charges.h"

#include "nas/frame/random.h"

#include <string.h>

#define CHARGES 10

/* A random number and its point, counted through the whole cube. */
struct draw {
    double number;
    double point; /* exact: below 2^53; one type for one message */
};

/* The ten largest numbers so far, descending. The smallest are those of the negative numbers. */
struct largest {
    struct draw draws[CHARGES];
};

static void largest_clear(struct largest *largest)
{
    for (int i = 0; i < CHARGES; i++)
        largest->draws[i] = (struct draw){-2, -1};
}

static void largest_add(struct largest *largest, struct draw draw)
{
    int i = CHARGES - 1;

    if (draw.number <= largest->draws[i].number)
        return;
    for (; i > 0 && largest->draws[i - 1].number < draw.number; i--)
        largest->draws[i] = largest->draws[i - 1];
    largest->draws[i] = draw;
}

/* The first point of this rank along an axis. */
static int first_point(const struct box *box, const struct lattice *lattice, int axis)
{
    return lattice->place[axis] * box->points[axis];
}

/* Draws the numbers of this rank's points, row by row. */
static void draw_all(const struct box *box, const struct lattice *lattice, int side,
                     double *numbers, struct largest largest[2])
{
    for (int k = 0; k < box->points[2]; k++)
        for (int j = 0; j < box->points[1]; j++) {
            int64_t point = first_point(box, lattice, 2) + k;

            point = point * side + first_point(box, lattice, 1) + j;
            point = point * side + first_point(box, lattice, 0);
            uint64_t state = random_skip(RANDOM_SEED, (uint64_t)point);

            random_fill(&state, (size_t)box->points[0], numbers);
            for (int i = 0; i < box->points[0]; i++) {
                largest_add(&largest[0], (struct draw){numbers[i], (double)(point + i)});
                largest_add(&largest[1], (struct draw){-numbers[i], (double)(point + i)});
            }
        }
}

/* Keeps those of all ranks. */
static void share(const struct lattice *lattice, struct largest *largest)
{
    struct run *run = lattice->run;
    struct largest *all = run_memory(run, (size_t)run->ranks, sizeof *all);

    MPI_Allgather(largest, 2 * CHARGES, MPI_DOUBLE, all, 2 * CHARGES, MPI_DOUBLE, run->comm);
    largest_clear(largest);
    for (int rank = 0; rank < run->ranks; rank++)
        for (int i = 0; i < CHARGES; i++)
            largest_add(largest, all[rank].draws[i]);
    run_release(run, all);
}

/* Sets the points that are this rank's. */
static void set(const struct box *box, const struct lattice *lattice, int side,
                const struct largest *largest, double charge, double *values)
{
    for (int i = 0; i < CHARGES; i++) {
        int64_t point = (int64_t)largest->draws[i].point;
        int at[AXES];
        bool mine = true;

        for (int axis = 0; axis < AXES; axis++, point /= side) {
            at[axis] = (int)(point % side) - first_point(box, lattice, axis);
            mine &= at[axis] >= 0 && at[axis] < box->points[axis];
        }
        if (mine)
            box_row_of(box, values, at[1] + 1, at[2] + 1)[at[0] + 1] = charge;
    }
}

void charges_place(const struct box *box, const struct lattice *lattice, int side, double *values)
{
    struct largest largest[2];

    largest_clear(&largest[0]);
    largest_clear(&largest[1]);
    draw_all(box, lattice, side, values, largest);
    share(lattice, &largest[0]);
    share(lattice, &largest[1]);
    memset(values, 0, (size_t)box->size * sizeof *values);
    set(box, lattice, side, &largest[0], 1, values);
    set(box, lattice, side, &largest[1], -1, values);
}
