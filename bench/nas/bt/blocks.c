/*
 * Lines of BT. With J(i) the Jacobian of the flux at point i, N(i) that of the viscous flux, and D
 * the damping, the system along a direction is, for the change x of u:
 *
 *     A(i) = -dt first J(i-1) - dt second (N(i-1) + D)
 *     B(i) = 1 + 2 dt second (N(i) + D)
 *     C(i) =  dt first J(i+1) - dt second (N(i+1) + D)
 *     A(i) x(i-1) + B(i) x(i) + C(i) x(i+1) = rhs(i)
 *
 * Elimination makes that x(i) + C'(i) x(i+1) = r'(i). The changes of neighbours beyond the boundary
 * are 0, and with a border of zeros the first point needs no case of its own.
 *
 * The components are taken in the order density, momentum along the line, the two other momenta,
 * energy: the same formulas then serve every direction.
 */
#include "nas/bt/blocks.h"

#define ROW (COMPONENTS + 1) /* a row of C', and r' */
#define KEPT (COMPONENTS * ROW)
#define ALWAYS_INLINE inline __attribute__((always_inline))

/* What a point contributes: only what is not 0 or the same everywhere. [3][3] is like [2][2]. */
struct point {
    vector diagonal[COMPONENTS][COMPONENTS]; /* B(i) */
    vector below[COMPONENTS][COMPONENTS];    /* -A(i+1) */
    vector above[COMPONENTS][COMPONENTS];    /* C(i-1) */
};

/* A row of the system while it is worked on. */
struct row {
    vector b[COMPONENTS];
    vector c[ROW]; /* of C, and the right-hand side */
};

/* Factors along a direction. */
struct factors {
    double flux;    /* dt first */
    double viscous; /* dt second */
    double damping; /* dt second D */
};

static struct factors factors_of(const struct lines *lines)
{
    const struct flow *flow = lines->flow;
    const double viscous = flow->dt * flow->second;

    return (struct factors){flow->dt * flow->first, viscous,
                            viscous * flow_damping[lines->direction]};
}

/* The parts of an entry of the three blocks: flux, and viscous flux. */
static ALWAYS_INLINE void set_entry(struct point *point, const struct factors *factors, int row,
                                    int column, vector flux, vector viscous)
{
    const vector f = factors->flux * flux, v = factors->viscous * viscous;

    point->diagonal[row][column] = 2.0 * v;
    point->below[row][column] = f + v;
    point->above[row][column] = f - v;
}

static ALWAYS_INLINE void add_damping(struct point *point, const struct factors *factors, int row)
{
    point->diagonal[row][row] += 1 + 2 * factors->damping;
    point->below[row][row] += factors->damping;
    point->above[row][row] -= factors->damping;
}

/* Entries without viscosity. */
static ALWAYS_INLINE void set_flux(struct point *point, const struct factors *factors, int row,
                                   int column, vector flux)
{
    point->below[row][column] = point->above[row][column] = factors->flux * flux;
}

/* `u` has the components of a line, LANE_VECTORS vectors apart. */
static ALWAYS_INLINE void compute_point(struct point *point, const struct factors *factors,
                                        const vector *u)
{
    const double heat = C1345, shear = C34, stretch = C34 * 4 / 3;
    const vector r = 1.0 / u[0];
    const vector v = u[1 * LANE_VECTORS] * r;
    const vector v1 = u[2 * LANE_VECTORS] * r, v2 = u[3 * LANE_VECTORS] * r;
    const vector e = u[4 * LANE_VECTORS] * r;
    const vector along = v * v, across = v1 * v1 + v2 * v2, kinetic = 0.5 * (along + across);
    const vector none = v - v;

    set_entry(point, factors, 1, 0, C2 * kinetic - along, -stretch * r * v);
    set_entry(point, factors, 1, 1, (2 - C2) * v, stretch * r);
    set_flux(point, factors, 1, 2, -C2 * v1);
    set_flux(point, factors, 1, 3, -C2 * v2);
    set_flux(point, factors, 1, 4, none + C2);
    set_entry(point, factors, 2, 0, -v * v1, -shear * r * v1);
    set_flux(point, factors, 2, 1, v1);
    set_entry(point, factors, 2, 2, v, shear * r);
    set_entry(point, factors, 3, 0, -v * v2, -shear * r * v2);
    set_flux(point, factors, 3, 1, v2);
    set_entry(point, factors, 4, 0, (2 * C2 * kinetic - C1 * e) * v,
              -r * ((stretch - heat) * along + (shear - heat) * across + heat * e));
    set_entry(point, factors, 4, 1, C1 * e - C2 * (along + kinetic), (stretch - heat) * r * v);
    set_entry(point, factors, 4, 2, -C2 * v * v1, (shear - heat) * r * v1);
    set_entry(point, factors, 4, 3, -C2 * v * v2, (shear - heat) * r * v2);
    set_entry(point, factors, 4, 4, C1 * v, heat * r);
    add_damping(point, factors, 1);
    add_damping(point, factors, 2);
    add_damping(point, factors, 4);
}

/* Adds a multiple of a row of C' and r' of the point before. */
static ALWAYS_INLINE void add_before(struct row *row, vector factor, const vector *before, int from)
{
    before += from * ROW * LANE_VECTORS;
#pragma GCC unroll 8
    for (int x = 0; x < COMPONENTS; x++)
        row->b[x] += factor * before[x * LANE_VECTORS];
    row->c[COMPONENTS] += factor * before[COMPONENTS * LANE_VECTORS];
}

/* Eliminates the columns before `number`, scales the row, and puts it away. */
static ALWAYS_INLINE void finish_row(struct row *row, int number,
                                     vector upper[COMPONENTS][COMPONENTS], vector *kept)
{
#pragma GCC unroll 8
    for (int p = 0; p < number; p++) {
        const vector factor = row->b[p];

#pragma GCC unroll 8
        for (int x = p + 1; x < COMPONENTS; x++)
            row->b[x] -= factor * upper[p][x];
#pragma GCC unroll 8
        for (int x = 0; x < ROW; x++)
            row->c[x] -= factor * kept[(p * ROW + x) * LANE_VECTORS];
    }
    const vector scale = 1.0 / row->b[number];

#pragma GCC unroll 8
    for (int x = number + 1; x < COMPONENTS; x++)
        upper[number][x] = row->b[x] * scale;
#pragma GCC unroll 8
    for (int x = 0; x < ROW; x++)
        kept[(number * ROW + x) * LANE_VECTORS] = row->c[x] * scale;
}

/* The rows of C' and r' of a point, from below. */
static ALWAYS_INLINE void substitute_rows(vector upper[COMPONENTS][COMPONENTS], vector *kept)
{
#pragma GCC unroll 8
    for (int row = COMPONENTS - 2; row >= 0; row--) {
        vector sum[ROW];

#pragma GCC unroll 8
        for (int x = 0; x < ROW; x++)
            sum[x] = kept[(row * ROW + x) * LANE_VECTORS];
#pragma GCC unroll 8
        for (int p = row + 1; p < COMPONENTS; p++)
#pragma GCC unroll 8
            for (int x = 0; x < ROW; x++)
                sum[x] -= upper[row][p] * kept[(p * ROW + x) * LANE_VECTORS];
#pragma GCC unroll 8
        for (int x = 0; x < ROW; x++)
            kept[(row * ROW + x) * LANE_VECTORS] = sum[x];
    }
}

/* One point: `kept` has its right-hand sides, and gets C' and r'; `before` those of the point
 * before. */
static void eliminate_point(const struct factors *factors, const struct point *last,
                            const struct point *here, const struct point *next,
                            const vector *before, vector *kept)
{
    vector upper[COMPONENTS][COMPONENTS];
    struct row row;
    const vector none = here->below[1][1] - here->below[1][1];
    const vector damping = none + factors->damping, flux = none + factors->flux;

#define RHS(row) kept[((row) * ROW + COMPONENTS) * LANE_VECTORS]
    row = (struct row){{none + (1 + 2 * factors->damping), none, none, none, none},
                       {-damping, flux, none, none, none, RHS(0)}};
    add_before(&row, damping, before, 0);
    add_before(&row, flux, before, 1);
    finish_row(&row, 0, upper, kept);

    row = (struct row){{here->diagonal[1][0], here->diagonal[1][1], none, none, none},
                       {next->above[1][0], next->above[1][1], next->above[1][2], next->above[1][3],
                        next->above[1][4], RHS(1)}};
#pragma GCC unroll 8
    for (int x = 0; x < COMPONENTS; x++)
        add_before(&row, last->below[1][x], before, x);
    finish_row(&row, 1, upper, kept);

    row =
        (struct row){{here->diagonal[2][0], none, here->diagonal[2][2], none, none},
                     {next->above[2][0], next->above[2][1], next->above[2][2], none, none, RHS(2)}};
    add_before(&row, last->below[2][0], before, 0);
    add_before(&row, last->below[2][1], before, 1);
    add_before(&row, last->below[2][2], before, 2);
    finish_row(&row, 2, upper, kept);

    row =
        (struct row){{here->diagonal[3][0], none, none, here->diagonal[2][2], none},
                     {next->above[3][0], next->above[3][1], none, next->above[2][2], none, RHS(3)}};
    add_before(&row, last->below[3][0], before, 0);
    add_before(&row, last->below[3][1], before, 1);
    add_before(&row, last->below[2][2], before, 3);
    finish_row(&row, 3, upper, kept);

    row = (struct row){{here->diagonal[4][0], here->diagonal[4][1], here->diagonal[4][2],
                        here->diagonal[4][3], here->diagonal[4][4]},
                       {next->above[4][0], next->above[4][1], next->above[4][2], next->above[4][3],
                        next->above[4][4], RHS(4)}};
#pragma GCC unroll 8
    for (int x = 0; x < COMPONENTS; x++)
        add_before(&row, last->below[4][x], before, x);
    finish_row(&row, 4, upper, kept);
#undef RHS
    substitute_rows(upper, kept);
}

/* Components in the order of a line: density, momentum along it, the others, energy. */
static int component(const struct lines *lines, int place)
{
    if (place == DENSITY || place == ENERGY)
        return place;
    return MOMENTUM + (lines->direction + place - MOMENTUM) % DIRECTIONS;
}

static void eliminate(const struct lines *lines, vector *kept, vector *border)
{
    const struct factors factors = factors_of(lines);
    const vector *u = (const vector *)lines->gathered;
    const int count = lines->end - lines->begin;

    for (int place = 0; place < COMPONENTS; place++) {
        int m = component(lines, place);

        lines_gather(lines, lines->block->u[m], lines->begin - 1, lines->end + 1,
                     lines->gathered + place * LANES, COMPONENTS * LANES);
        lines_gather(lines, lines->block->rhs[m], lines->begin, lines->end,
                     (double *)kept + (place * ROW + COMPONENTS) * LANES, KEPT * LANES);
    }
    for (int v = 0; v < LANE_VECTORS; v++) {
        struct point points[3];
        const vector *before = border + v;

        compute_point(&points[0], &factors, u + v);
        compute_point(&points[1], &factors, u + COMPONENTS * LANE_VECTORS + v);
        for (int i = 0; i < count; i++) {
            vector *here = kept + (ptrdiff_t)i * KEPT * LANE_VECTORS + v;

            compute_point(&points[(i + 2) % 3], &factors,
                          u + (ptrdiff_t)(i + 2) * COMPONENTS * LANE_VECTORS + v);
            eliminate_point(&factors, &points[i % 3], &points[(i + 1) % 3], &points[(i + 2) % 3],
                            before, here);
            before = here;
        }
    }
    if (count > 0)
        for (int i = 0; i < KEPT * LANE_VECTORS; i++)
            border[i] = kept[(ptrdiff_t)(count - 1) * KEPT * LANE_VECTORS + i];
}

/* x(i) = r'(i) - C'(i) x(i+1), which stands where r' was. */
static void substitute_line(int count, vector *kept, vector *border)
{
    vector x[COMPONENTS];

    for (int m = 0; m < COMPONENTS; m++)
        x[m] = border[m * LANE_VECTORS];
    for (int i = count - 1; i >= 0; i--) {
        vector *here = kept + (ptrdiff_t)i * KEPT * LANE_VECTORS;
        vector sum[COMPONENTS];

#pragma GCC unroll 8
        for (int row = 0; row < COMPONENTS; row++) {
            sum[row] = here[(row * ROW + COMPONENTS) * LANE_VECTORS];
#pragma GCC unroll 8
            for (int column = 0; column < COMPONENTS; column++)
                sum[row] -= here[(row * ROW + column) * LANE_VECTORS] * x[column];
        }
#pragma GCC unroll 8
        for (int row = 0; row < COMPONENTS; row++)
            here[(row * ROW + COMPONENTS) * LANE_VECTORS] = x[row] = sum[row];
    }
    for (int m = 0; m < COMPONENTS; m++)
        border[m * LANE_VECTORS] = x[m];
}

/* The last direction's changes go to u itself. */
static void add_to_u(const struct lines *lines, int m, const double *change)
{
    double *u = lines->gathered;

    lines_gather(lines, lines->block->u[m], lines->begin, lines->end, u, LANES);
    for (int i = 0; i < lines->end - lines->begin; i++)
        for (int lane = 0; lane < LANES; lane++)
            u[i * LANES + lane] += change[(ptrdiff_t)i * KEPT * LANES + lane];
    lines_scatter(lines, lines->block->u[m], lines->begin, lines->end, u, LANES);
}

static void substitute(const struct lines *lines, vector *kept, vector *border)
{
    for (int v = 0; v < LANE_VECTORS; v++)
        substitute_line(lines->end - lines->begin, kept + v, border + v);
    for (int place = 0; place < COMPONENTS; place++) {
        const double *x = (const double *)kept + (place * ROW + COMPONENTS) * LANES;
        int m = component(lines, place);

        if (lines->direction == DIRECTIONS - 1)
            add_to_u(lines, m, x);
        else
            lines_scatter(lines, lines->block->rhs[m], lines->begin, lines->end, x, KEPT * LANES);
    }
}

const struct line_method bt_method = {
    .kept = KEPT,
    .ahead = KEPT,
    .back = COMPONENTS,
    .gathered = COMPONENTS,
    .eliminate_work = 101,
    .substitute_work = 43,
    .eliminate = eliminate,
    .substitute = substitute,
};
