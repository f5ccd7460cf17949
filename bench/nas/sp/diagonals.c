/*
 * Lines of SP. In characteristic variables the flux Jacobian along a direction is diagonal: the
 * velocity v three times, v + c and v - c, where c is the speed of sound. Each variable has its own
 * system, with first and second differences on the three middle diagonals, and the fourth
 * differences of the dissipation on all five. Elimination makes of each
 *
 *     x(i) + d(i) x(i+1) + e(i) x(i+2) = r(i)
 *
 * Neighbours beyond the boundary do not change; with a border of zeros they need no case.
 */
#include "nas/sp/diagonals.h"

#include <string.h>

#define SYSTEMS 3 /* different ones: v, v + c, v - c */
/* Of each point: d and e of the systems, then r of the variables. */
#define R (2 * SYSTEMS)
#define KEPT (R + COMPONENTS)
/* What the diagonals are made of, at each point. */
enum { VELOCITY, SOUND, INVERSE_DENSITY, GATHERED };
#define ROOT_HALF 0.70710678118654752440

/* T^-1 of the first sweep. */
void sp_to_characteristic(const struct block *block, ptrdiff_t at, int count)
{
    const double *vx = block->velocity[0] + at, *vy = block->velocity[1] + at,
                 *vz = block->velocity[2] + at;
    const double *inverse = block->inverse_density + at, *kinetic = block->kinetic + at,
                 *sound = block->sound + at;
    double *r0 = block->rhs[0] + at, *r1 = block->rhs[1] + at, *r2 = block->rhs[2] + at,
           *r3 = block->rhs[3] + at, *r4 = block->rhs[4] + at;

#pragma GCC ivdep
    for (int i = 0; i < count; i++) {
        const double a = r0[i], x = r1[i], y = r2[i], z = r3[i];
        const double pressure = C2 / (sound[i] * sound[i]) *
                                (kinetic[i] * a - vx[i] * x - vy[i] * y - vz[i] * z + r4[i]);
        const double normal = ROOT_HALF * inverse[i] * (vx[i] * a - x);
        const double wave = ROOT_HALF * inverse[i] * sound[i] * pressure;

        r0[i] = a - pressure;
        r1[i] = -inverse[i] * (vz[i] * a - z);
        r2[i] = inverse[i] * (vy[i] * a - y);
        r3[i] = wave - normal;
        r4[i] = wave + normal;
    }
}

/* Factors along a direction. */
struct factors {
    double flux;        /* dt first */
    double viscous;     /* dt second */
    double damping;     /* dt second D */
    double dissipation; /* dt times that of the fourth difference */
};

static struct factors factors_of(const struct lines *lines)
{
    const struct flow *flow = lines->flow;
    const double viscous = flow->dt * flow->second;

    return (struct factors){flow->dt * flow->first, viscous,
                            viscous * flow_damping[lines->direction], flow->dt * DISSIPATION};
}

/* The five diagonals of a system at a point. */
struct diagonals {
    vector below2, below, here, above, above2;
};

/* Those of v. `at` has what is gathered of the point, with one point before and one after. The
 * specification takes the largest viscosity of all equations, which is that of energy. */
static inline struct diagonals diagonals_at(const vector *at, const struct factors *factors,
                                            const double weights[5])
{
    const vector *before = at - GATHERED * LANE_VECTORS, *after = at + GATHERED * LANE_VECTORS;
    const double viscous = factors->viscous * C1345, dissipation = factors->dissipation;
    const int density = INVERSE_DENSITY * LANE_VECTORS, v = VELOCITY * LANE_VECTORS;
    const vector none = at[0] - at[0];

    return (struct diagonals){
        none + dissipation * weights[0],
        (dissipation * weights[1] - factors->damping) - factors->flux * before[v] -
            viscous * before[density],
        (1 + dissipation * weights[2] + 2 * factors->damping) + 2 * viscous * at[density],
        (dissipation * weights[3] - factors->damping) + factors->flux * after[v] -
            viscous * after[density],
        none + dissipation * weights[4],
    };
}

/* Eliminates a point of a system with its `count` variables from `variable` on. `last` and
 * `last_but_one` are the points before. */
static inline __attribute__((always_inline)) void eliminate_point(struct diagonals row, int system,
                                                                  int variable, int count,
                                                                  const vector *last_but_one,
                                                                  const vector *last, vector *kept)
{
    const int d = 2 * system * LANE_VECTORS, e = d + LANE_VECTORS;

    row.below -= row.below2 * last_but_one[d];
    row.here -= row.below2 * last_but_one[e] + row.below * last[d];
    row.above -= row.below * last[e];
    const vector scale = 1.0 / row.here;

    kept[d] = row.above * scale;
    kept[e] = row.above2 * scale;
#pragma GCC unroll 8
    for (int m = variable; m < variable + count; m++) {
        const int r = (R + m) * LANE_VECTORS;

        kept[r] = (kept[r] - row.below2 * last_but_one[r] - row.below * last[r]) * scale;
    }
}

static void gather_line(const struct lines *lines, vector *kept)
{
    const struct block *block = lines->block;
    const double *fields[GATHERED] = {
        [VELOCITY] = block->velocity[lines->direction],
        [SOUND] = block->sound,
        [INVERSE_DENSITY] = block->inverse_density,
    };

    for (int m = 0; m < COMPONENTS; m++)
        lines_gather(lines, block->rhs[m], lines->begin, lines->end,
                     (double *)kept + (R + m) * LANES, KEPT * LANES);
    for (int f = 0; f < GATHERED; f++)
        lines_gather(lines, fields[f], lines->begin - 1, lines->end + 1,
                     lines->gathered + f * LANES, GATHERED * LANES);
}

static void eliminate(const struct lines *lines, vector *kept, vector *border)
{
    const struct factors factors = factors_of(lines);
    const int count = lines->end - lines->begin, points = lines->flow->points;
    const int first = lines->block->origin[lines->direction] + lines->begin;
    const vector *last_but_one = border, *last = border + KEPT * LANE_VECTORS;
    const vector *at = (const vector *)lines->gathered;
    vector *here = kept;

    gather_line(lines, kept);
    for (int i = 0; i < count; i++) {
        const double *weights = flow_fourth_difference(first + i, points);

        at += GATHERED * LANE_VECTORS;
#pragma GCC unroll 4
        for (int v = 0; v < LANE_VECTORS; v++) {
            const struct diagonals row = diagonals_at(at + v, &factors, weights);
            const vector *sound = at + SOUND * LANE_VECTORS + v;
            const vector below = factors.flux * sound[-GATHERED * LANE_VECTORS];
            const vector above = factors.flux * sound[GATHERED * LANE_VECTORS];
            struct diagonals plus = row, minus = row;

            plus.below -= below;
            plus.above += above;
            minus.below += below;
            minus.above -= above;
            eliminate_point(row, 0, 0, 3, last_but_one + v, last + v, here + v);
            eliminate_point(plus, 1, 3, 1, last_but_one + v, last + v, here + v);
            eliminate_point(minus, 2, 4, 1, last_but_one + v, last + v, here + v);
        }
        last_but_one = last;
        last = here;
        here += KEPT * LANE_VECTORS;
    }
    /* The last two points; `border` may be one of them. */
    memmove(border, last_but_one, KEPT * LANES * sizeof(double));
    memcpy(border + KEPT * LANE_VECTORS, last, KEPT * LANES * sizeof(double));
}

/* From the variables of the sweep along x to those along y, and from y to z. */
static inline __attribute__((always_inline)) void to_next_direction(int direction, const vector *x,
                                                                    vector *to)
{
    const vector half = 0.5 * (x[3] + x[4]), difference = ROOT_HALF * (x[3] - x[4]);

    if (direction == 0) {
        const vector y = ROOT_HALF * x[2];

        to[0] = -x[1];
        to[1 * LANE_VECTORS] = x[0];
        to[2 * LANE_VECTORS] = difference;
        to[3 * LANE_VECTORS] = half - y;
        to[4 * LANE_VECTORS] = half + y;
    } else {
        const vector z = ROOT_HALF * x[0];

        to[0] = difference;
        to[1 * LANE_VECTORS] = -x[2];
        to[2 * LANE_VECTORS] = x[1];
        to[3 * LANE_VECTORS] = half - z;
        to[4 * LANE_VECTORS] = half + z;
    }
}

/* What is gathered for the way back: velocities, and then u. */
enum { BACK_KINETIC = DIRECTIONS, BACK_SOUND, BACK_U, BACK_GATHERED = BACK_U + COMPONENTS };

/* From the variables along z to those of the equations, which are added to u. */
static inline void add_to_u(const vector *x, vector *at)
{
    const vector density = at[BACK_U * LANE_VECTORS];
    const vector vx = at[0], vy = at[1 * LANE_VECTORS], vz = at[2 * LANE_VECTORS];
    const vector kinetic = at[BACK_KINETIC * LANE_VECTORS], sound = at[BACK_SOUND * LANE_VECTORS];
    const vector half_density = ROOT_HALF * density;
    const vector wave = half_density / sound * (x[3] + x[4]);
    const vector mass = x[2] + wave, push = half_density * (x[3] - x[4]);
    vector *u = at + BACK_U * LANE_VECTORS;

    u[0] += mass;
    u[1 * LANE_VECTORS] += vx * mass - density * x[1];
    u[2 * LANE_VECTORS] += vy * mass + density * x[0];
    u[3 * LANE_VECTORS] += vz * mass + push;
    u[4 * LANE_VECTORS] += density * (vy * x[0] - vx * x[1]) + kinetic * mass +
                           (1 / C2) * sound * sound * wave + vz * push;
}

static inline __attribute__((always_inline)) void
substitute_line(int direction, int count, vector *kept, vector *gathered, vector *border)
{
    /* x(i+1) and x(i+2). */
    vector x1[COMPONENTS], x2[COMPONENTS];

    for (int m = 0; m < COMPONENTS; m++) {
        x1[m] = border[m * LANE_VECTORS];
        x2[m] = border[(COMPONENTS + m) * LANE_VECTORS];
    }
    for (int i = count - 1; i >= 0; i--) {
        vector *here = kept + (ptrdiff_t)i * KEPT * LANE_VECTORS;

#pragma GCC unroll 8
        for (int m = 0; m < COMPONENTS; m++) {
            const int d = 2 * (m < 3 ? 0 : m - 2) * LANE_VECTORS, e = d + LANE_VECTORS;
            const vector x = here[(R + m) * LANE_VECTORS] - here[d] * x1[m] - here[e] * x2[m];

            x2[m] = x1[m];
            x1[m] = x;
        }
        if (direction == DIRECTIONS - 1)
            add_to_u(x1, gathered + (ptrdiff_t)i * BACK_GATHERED * LANE_VECTORS);
        else
            to_next_direction(direction, x1, here + R * LANE_VECTORS);
    }
    for (int m = 0; m < COMPONENTS; m++) {
        border[m * LANE_VECTORS] = x1[m];
        border[(COMPONENTS + m) * LANE_VECTORS] = x2[m];
    }
}

static void substitute_last(const struct lines *lines, vector *kept, vector *border)
{
    const struct block *block = lines->block;
    double *gathered = lines->gathered;
    const ptrdiff_t stride = BACK_GATHERED * LANES;

    for (int d = 0; d < DIRECTIONS; d++)
        lines_gather(lines, block->velocity[d], lines->begin, lines->end, gathered + d * LANES,
                     stride);
    lines_gather(lines, block->kinetic, lines->begin, lines->end, gathered + BACK_KINETIC * LANES,
                 stride);
    lines_gather(lines, block->sound, lines->begin, lines->end, gathered + BACK_SOUND * LANES,
                 stride);
    for (int m = 0; m < COMPONENTS; m++)
        lines_gather(lines, block->u[m], lines->begin, lines->end, gathered + (BACK_U + m) * LANES,
                     stride);
    for (int v = 0; v < LANE_VECTORS; v++)
        substitute_line(DIRECTIONS - 1, lines->end - lines->begin, kept + v, (vector *)gathered + v,
                        border + v);
    for (int m = 0; m < COMPONENTS; m++)
        lines_scatter(lines, block->u[m], lines->begin, lines->end, gathered + (BACK_U + m) * LANES,
                      stride);
}

static void substitute(const struct lines *lines, vector *kept, vector *border)
{
    const int count = lines->end - lines->begin;

    if (lines->direction == DIRECTIONS - 1) {
        substitute_last(lines, kept, border);
        return;
    }
    for (int v = 0; v < LANE_VECTORS; v++)
        if (lines->direction == 0)
            substitute_line(0, count, kept + v, NULL, border + v);
        else
            substitute_line(1, count, kept + v, NULL, border + v);
    for (int m = 0; m < COMPONENTS; m++)
        lines_scatter(lines, lines->block->rhs[m], lines->begin, lines->end,
                      (const double *)kept + (R + m) * LANES, KEPT * LANES);
}

const struct line_method sp_method = {
    .kept = KEPT,
    .ahead = 2 * KEPT,
    .back = 2 * COMPONENTS,
    .gathered = BACK_GATHERED,
    .eliminate_work = 37,
    .substitute_work = 29,
    .eliminate = eliminate,
    .substitute = substitute,
};
