/*
 * The right-hand side of the equations (NAS-95-020, chapter 3): central differences of the
 * fluxes, second differences for viscosity and damping, and fourth differences against ripples.
 *
 * Works row by row along x: what a row needs stays in the cache while the three directions are
 * added, and each loop along x runs on vectors. GCC cannot know that the arrays do not overlap;
 * `ivdep` says so.
 */
#include "nas/flow/block.h"

#include <math.h>

/* Pointers to the first point of a row. */
struct row {
    double *rhs[COMPONENTS];
    const double *forcing[COMPONENTS];
    const double *u[COMPONENTS];
    const double *velocity[DIRECTIONS];
    const double *inverse_density;
    const double *kinetic;
    const double *pressure;
};

static struct row row_at(const struct block *block, ptrdiff_t at)
{
    struct row row = {
        .inverse_density = block->inverse_density + at,
        .kinetic = block->kinetic + at,
        .pressure = block->pressure + at,
    };

    for (int m = 0; m < COMPONENTS; m++) {
        row.rhs[m] = block->rhs[m] + at;
        row.forcing[m] = block->forcing[m] + at;
        row.u[m] = block->u[m] + at;
    }
    for (int d = 0; d < DIRECTIONS; d++)
        row.velocity[d] = block->velocity[d] + at;
    return row;
}

/* Velocity, pressure and the like in a row of `count` points. */
static void derive_row(const struct block *block, ptrdiff_t at, int count)
{
    const double *density = block->u[DENSITY] + at, *energy = block->u[ENERGY] + at;
    const double *mx = block->u[MOMENTUM] + at, *my = block->u[MOMENTUM + 1] + at,
                 *mz = block->u[MOMENTUM + 2] + at;
    double *x = block->velocity[0] + at, *y = block->velocity[1] + at, *z = block->velocity[2] + at;
    double *inverse = block->inverse_density + at, *kinetic = block->kinetic + at,
           *pressure = block->pressure + at, *sound = block->sound + at;

#pragma GCC ivdep
    for (int i = 0; i < count; i++) {
        double per_density = 1 / density[i];
        double square = 0.5 * (mx[i] * mx[i] + my[i] * my[i] + mz[i] * mz[i]) * per_density;

        inverse[i] = per_density;
        x[i] = mx[i] * per_density;
        y[i] = my[i] * per_density;
        z[i] = mz[i] * per_density;
        kinetic[i] = square * per_density;
        pressure[i] = C2 * (energy[i] - square);
        sound[i] = sqrt(C1 * pressure[i] * per_density);
    }
}

/* The same in a plane, with the points next to the block. */
static void derive_plane(const struct block *block, const struct flow *flow, int k)
{
    int low[2], high[2];

    for (int d = 0; d < 2; d++) {
        low[d] = block->origin[d] == 0 ? 0 : -1;
        high[d] = block->size[d] + (block->origin[d] + block->size[d] == flow->points ? 0 : 1);
    }
    for (int j = low[1]; j < high[1]; j++)
        derive_row(block, block_at(block, low[0], j, k), high[0] - low[0]);
}

/* Adds the fluxes along a direction to `base`, for the points [begin, end) of a row; `s` is the
 * step along it. Inlined, so that the direction is known. */
static inline __attribute__((always_inline)) void add_fluxes(const struct row *row,
                                                             const double *const base[COMPONENTS],
                                                             const struct flow *flow, int direction,
                                                             ptrdiff_t s, int begin, int end)
{
    /* The direction itself, and the two others. */
    const int n = direction, t1 = (direction + 1) % DIRECTIONS, t2 = (direction + 2) % DIRECTIONS;
    const double first = flow->first, viscous = C34 * flow->second;
    const double damping = flow_damping[direction] * flow->second;
    const double *density = row->u[DENSITY], *energy = row->u[ENERGY];
    const double *mn = row->u[MOMENTUM + n], *mt1 = row->u[MOMENTUM + t1],
                 *mt2 = row->u[MOMENTUM + t2];
    const double *vn = row->velocity[n], *vt1 = row->velocity[t1], *vt2 = row->velocity[t2];
    const double *inverse = row->inverse_density, *kinetic = row->kinetic, *p = row->pressure;
    const double *b0 = base[DENSITY], *b1 = base[MOMENTUM + n], *b2 = base[MOMENTUM + t1],
                 *b3 = base[MOMENTUM + t2], *b4 = base[ENERGY];
    double *r0 = row->rhs[DENSITY], *r1 = row->rhs[MOMENTUM + n], *r2 = row->rhs[MOMENTUM + t1],
           *r3 = row->rhs[MOMENTUM + t2], *r4 = row->rhs[ENERGY];

#define SECOND_DIFFERENCE(a) ((a)[i + s] - 2 * (a)[i] + (a)[i - s])
#pragma GCC ivdep
    for (int i = begin; i < end; i++) {
        double here = vn[i], after = vn[i + s], before = vn[i - s];

        r0[i] = b0[i] + damping * SECOND_DIFFERENCE(density) - first * (mn[i + s] - mn[i - s]);
        r1[i] = b1[i] + damping * SECOND_DIFFERENCE(mn) +
                viscous * (4.0 / 3) * (after - 2 * here + before) -
                first * (mn[i + s] * after - mn[i - s] * before + p[i + s] - p[i - s]);
        r2[i] = b2[i] + damping * SECOND_DIFFERENCE(mt1) + viscous * SECOND_DIFFERENCE(vt1) -
                first * (mt1[i + s] * after - mt1[i - s] * before);
        r3[i] = b3[i] + damping * SECOND_DIFFERENCE(mt2) + viscous * SECOND_DIFFERENCE(vt2) -
                first * (mt2[i + s] * after - mt2[i - s] * before);
        r4[i] = b4[i] + damping * SECOND_DIFFERENCE(energy) +
                viscous * ((1 - C1C5) * SECOND_DIFFERENCE(kinetic) +
                           (1.0 / 6) * (after * after - 2 * here * here + before * before) +
                           C1C5 * (energy[i + s] * inverse[i + s] - 2 * energy[i] * inverse[i] +
                                   energy[i - s] * inverse[i - s])) -
                first * ((energy[i + s] + p[i + s]) * after - (energy[i - s] + p[i - s]) * before);
    }
#undef SECOND_DIFFERENCE
}

/* Fourth differences along all directions, with their weights, then times dt. */
static void dissipate_edge(double *rhs, const double *u, const struct block *block, double dt,
                           const double *const weights[DIRECTIONS], int begin, int end)
{
    const ptrdiff_t sy = block->step[1], sz = block->step[2];
    const double *x = weights[0], *y = weights[1], *z = weights[2];

#pragma GCC ivdep
    for (int i = begin; i < end; i++) {
        double sum = (x[2] + y[2] + z[2]) * u[i];

        sum += x[0] * u[i - 2] + x[1] * u[i - 1] + x[3] * u[i + 1] + x[4] * u[i + 2];
        sum += y[0] * u[i - 2 * sy] + y[1] * u[i - sy] + y[3] * u[i + sy] + y[4] * u[i + 2 * sy];
        sum += z[0] * u[i - 2 * sz] + z[1] * u[i - sz] + z[3] * u[i + sz] + z[4] * u[i + 2 * sz];
        rhs[i] = dt * (rhs[i] - DISSIPATION * sum);
    }
}

/* The same where no boundary is near. */
static void dissipate_inside(double *rhs, const double *u, const struct block *block, double dt,
                             int begin, int end)
{
    const ptrdiff_t sy = block->step[1], sz = block->step[2];

#pragma GCC ivdep
    for (int i = begin; i < end; i++) {
        double near = (u[i - 1] + u[i + 1]) + (u[i - sy] + u[i + sy]) + (u[i - sz] + u[i + sz]);
        double far = (u[i - 2] + u[i + 2]) + (u[i - 2 * sy] + u[i + 2 * sy]) +
                     (u[i - 2 * sz] + u[i + 2 * sz]);

        rhs[i] = dt * (rhs[i] - DISSIPATION * (far - 4 * near + 18 * u[i]));
    }
}

static void dissipate_row(const struct row *row, const struct block *block, const struct flow *flow,
                          int j, int k)
{
    const int y = block->origin[1] + j, z = block->origin[2] + k;
    const double *weights[DIRECTIONS] = {NULL, flow_fourth_difference(y, flow->points),
                                         flow_fourth_difference(z, flow->points)};
    const double *inside = flow_fourth_inside;
    const bool near_edge = weights[1] != inside || weights[2] != inside;

    /* Stretches with the same weights along x: a long one, between some of one point. */
    for (int begin = block->begin[0], end; begin < block->end[0]; begin = end) {
        int x = block->origin[0] + begin;

        weights[0] = flow_fourth_difference(x, flow->points);
        end = begin + 1;
        if (weights[0] == inside) {
            end = flow->points - 3 - block->origin[0];
            if (end > block->end[0])
                end = block->end[0];
        }
        for (int m = 0; m < COMPONENTS; m++)
            if (near_edge || weights[0] != inside)
                dissipate_edge(row->rhs[m], row->u[m], block, flow->dt, weights, begin, end);
            else
                dissipate_inside(row->rhs[m], row->u[m], block, flow->dt, begin, end);
    }
}

void block_right_hand_side(struct block *block, const struct flow *flow, block_finish *finish)
{
    const int begin = block->begin[0], end = block->end[0];
    const int last = block->end[2];

    derive_plane(block, flow, block->begin[2] - 1);
    derive_plane(block, flow, block->begin[2]);
    for (int k = block->begin[2]; k < last; k++) {
        derive_plane(block, flow, k + 1);
        for (int j = block->begin[1]; j < block->end[1]; j++) {
            struct row row = row_at(block, block_at(block, 0, j, k));
            const double *const so_far[COMPONENTS] = {row.rhs[0], row.rhs[1], row.rhs[2],
                                                      row.rhs[3], row.rhs[4]};

            add_fluxes(&row, row.forcing, flow, 0, 1, begin, end);
            add_fluxes(&row, so_far, flow, 1, block->step[1], begin, end);
            add_fluxes(&row, so_far, flow, 2, block->step[2], begin, end);
            dissipate_row(&row, block, flow, j, k);
            if (finish != NULL)
                finish(block, block_at(block, begin, j, k), end - begin);
        }
    }
}
