/*
 * Symmetric successive over-relaxation: with the system's lower blocks L, its diagonal D and its
 * upper blocks U,
 *
 *     (D + w L) D^-1 (D + w U) x = rhs
 *
 * is solved by a sweep from the first point to the last and one back. A point of the first needs
 * the three neighbours before it along x, y and z. So ranks work on planes of z one after the
 * other: while one is at a plane, the ranks after it are at those before.
 *
 * No block is ever formed. Once x is known at a point, what it contributes to the equations of its
 * three neighbours follows from the velocities there. That is what travels: to the next point, row
 * and plane, and to other ranks. With p' for the change of pressure, and s = (momentum change)
 * - (velocity) (density change), the change of the flux along direction d is
 *
 *     density     x_d
 *     momentum d  v_d (s_d + x_d) + p'
 *     momentum t  v_t s_d + v_d x_t
 *     energy      h s_d + v_d (x_energy + p')       h: enthalpy
 *
 * and the viscous flux is in s as well. D is nearly diagonal: density changes by itself, momentum
 * depends on it, and energy on both.
 */
#include "nas/lu/relaxation.h"

#include <string.h>

#define OVER_RELAXATION 1.2
#define PLANE_WORK 46 /* for each point */
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define LOWER_TAG 16
#define UPPER_TAG 18

#define STRETCH (C34 * 4 / 3)

/* What the flow is at a point. */
struct state {
    double v[DIRECTIONS];
    double per_density;
    double kinetic;
    double energy; /* total, by mass */
    double enthalpy;
};

/* Factors of the blocks. */
struct factors {
    double flux;      /* w dt first */
    double viscous;   /* w dt second; negative towards lower points */
    double diagonal;  /* of D without viscosity */
    double diffusion; /* 2 dt second */
};

static struct factors factors_of(const struct flow *flow, bool upper)
{
    const double step = OVER_RELAXATION * flow->dt, diffusion = 2 * flow->dt * flow->second;

    return (struct factors){step * flow->first, (upper ? -step : step) * flow->second,
                            1 + diffusion * (flow_damping[0] + flow_damping[1] + flow_damping[2]),
                            diffusion};
}

static ALWAYS_INLINE struct state state_at(const struct block *block, ptrdiff_t at)
{
    struct state state = {.per_density = block->inverse_density[at], .kinetic = block->kinetic[at]};

    for (int d = 0; d < DIRECTIONS; d++)
        state.v[d] = block->velocity[d][at];
    state.energy = block->u[ENERGY][at] * state.per_density;
    state.enthalpy = state.energy + block->pressure[at] * state.per_density;
    return state;
}

/* x = D^-1 x */
static ALWAYS_INLINE void divide_by_diagonal(const struct state *state,
                                             const struct factors *factors, double x[COMPONENTS])
{
    const double diffusion = factors->diffusion * state->per_density;
    const double momentum = diffusion * (STRETCH + 2 * C34), heat = diffusion * 3 * C1345;
    const double per_momentum = 1 / (factors->diagonal + momentum);
    const double density = x[DENSITY] * (1 / factors->diagonal);
    double work = 0;

    for (int d = 0; d < DIRECTIONS; d++) {
        const double v = state->v[d];

        x[MOMENTUM + d] = (x[MOMENTUM + d] + momentum * v * density) * per_momentum;
        work += v * (x[MOMENTUM + d] - v * density);
    }
    x[DENSITY] = density;
    x[ENERGY] = (x[ENERGY] + heat * state->energy * density - (momentum - heat) * work) /
                (factors->diagonal + heat);
}

/* What x contributes to the next points along x, y and z. */
static ALWAYS_INLINE void contribute(const struct state *state, const struct factors *factors,
                                     const double x[COMPONENTS], struct contribution to[DIRECTIONS])
{
    const double density = x[DENSITY], energy = x[ENERGY], *v = state->v;
    const double viscous = factors->viscous * C34 * state->per_density;
    const double heat = factors->viscous * C1345 * state->per_density;
    double s[DIRECTIONS], work = 0, pressure = state->kinetic * density + energy;

    for (int d = 0; d < DIRECTIONS; d++) {
        s[d] = x[MOMENTUM + d] - v[d] * density;
        pressure -= v[d] * x[MOMENTUM + d];
        work += v[d] * s[d];
    }
    pressure *= C2;

    const double conduction = heat * (energy - state->energy * density) + (viscous - heat) * work;

    for (int d = 0; d < DIRECTIONS; d++) {
        const double damping = factors->viscous * flow_damping[d], flux = factors->flux;
        double *out = to[d].to;

        out[DENSITY] = flux * x[MOMENTUM + d] + damping * density;
        for (int t = 0; t < DIRECTIONS; t++)
            out[MOMENTUM + t] = flux * (v[t] * s[d] + v[d] * x[MOMENTUM + t]) + viscous * s[t] +
                                damping * x[MOMENTUM + t];
        out[MOMENTUM + d] += flux * pressure + viscous * (1.0 / 3) * s[d];
        out[ENERGY] = flux * (state->enthalpy * s[d] + v[d] * (energy + pressure)) + conduction +
                      viscous * (1.0 / 3) * v[d] * s[d] + damping * energy;
    }
}

/* One row of a sweep. */
struct row {
    const struct block *block;
    ptrdiff_t at;                  /* its point 0 */
    struct contribution *to_rows;  /* from the row before; for the one after */
    struct contribution *to_plane; /* likewise */
    struct contribution *to_next;  /* from the point before the row; for the one after */
};

/* The sum of what the three neighbours contributed to point i. */
static ALWAYS_INLINE void collect(const struct row *row, int i, const struct contribution *before,
                                  double sum[COMPONENTS])
{
    for (int m = 0; m < COMPONENTS; m++)
        sum[m] = row->to_plane[i].to[m] + row->to_rows[i].to[m] + before->to[m];
}

static void relax_row_lower(const struct row *row, const struct factors *factors)
{
    const struct block *block = row->block;
    struct contribution to[DIRECTIONS] = {*row->to_next};

    for (int i = block->begin[0]; i < block->end[0]; i++) {
        const struct state state = state_at(block, row->at + i);
        double x[COMPONENTS];

        collect(row, i, &to[0], x);
        for (int m = 0; m < COMPONENTS; m++)
            x[m] += block->rhs[m][row->at + i];
        divide_by_diagonal(&state, factors, x);
        for (int m = 0; m < COMPONENTS; m++)
            block->rhs[m][row->at + i] = x[m];
        contribute(&state, factors, x, to);
        row->to_rows[i] = to[1];
        row->to_plane[i] = to[2];
    }
    *row->to_next = to[0];
}

/* Back; and as the change of u is known then, adds it. */
static void relax_row_upper(const struct row *row, const struct factors *factors)
{
    const double share = 1 / (OVER_RELAXATION * (2 - OVER_RELAXATION));
    const struct block *block = row->block;
    struct contribution to[DIRECTIONS] = {*row->to_next};

    for (int i = block->end[0] - 1; i >= block->begin[0]; i--) {
        const struct state state = state_at(block, row->at + i);
        double x[COMPONENTS];

        collect(row, i, &to[0], x);
        divide_by_diagonal(&state, factors, x);
        for (int m = 0; m < COMPONENTS; m++) {
            x[m] = block->rhs[m][row->at + i] - x[m];
            block->u[m][row->at + i] += share * x[m];
        }
        contribute(&state, factors, x, to);
        row->to_rows[i] = to[1];
        row->to_plane[i] = to[2];
    }
    *row->to_next = to[0];
}

/* A sweep in one direction: which ranks are before, and which after. */
struct way {
    bool upper;
    int from[CUT_DIRECTIONS];
    int to[CUT_DIRECTIONS];
    int tag;
    struct factors factors;
};

/* What comes into the first row, and into the first point of each row; zeros at the boundary. */
static void receive_plane(struct pencil *pencil, const struct way *way)
{
    const struct block *block = &pencil->block;
    const int counts[] = {block->size[1], block->size[0]};
    struct contribution *into[] = {pencil->columns, pencil->rows};

    for (int d = 0; d < CUT_DIRECTIONS; d++)
        if (way->from[d] == MPI_PROC_NULL)
            memset(into[d], 0, (size_t)counts[d] * sizeof *into[d]);
        else
            IN_MPI(pencil->run, MPI_Recv(into[d], COMPONENTS * counts[d], MPI_DOUBLE, way->from[d],
                                         way->tag + d, pencil->run->comm, MPI_STATUS_IGNORE));
}

static void send_plane(struct pencil *pencil, const struct way *way)
{
    const struct block *block = &pencil->block;
    const int counts[] = {block->size[1], block->size[0]};
    const struct contribution *out[] = {pencil->columns, pencil->rows};

    for (int d = 0; d < CUT_DIRECTIONS; d++)
        if (way->to[d] != MPI_PROC_NULL)
            IN_MPI(pencil->run, MPI_Send(out[d], COMPONENTS * counts[d], MPI_DOUBLE, way->to[d],
                                         way->tag + d, pencil->run->comm));
}

static void relax_plane(struct pencil *pencil, const struct way *way, int k)
{
    const struct block *block = &pencil->block;
    const int begin = block->begin[1], rows = block->end[1] - begin;

    for (int n = 0; n < rows; n++) {
        const int j = way->upper ? begin + rows - 1 - n : begin + n;
        const struct row row = {block, block_at(block, 0, j, k), pencil->rows,
                                pencil->planes + (ptrdiff_t)j * block->size[0],
                                &pencil->columns[j]};

        if (way->upper)
            relax_row_upper(&row, &way->factors);
        else
            relax_row_lower(&row, &way->factors);
    }
}

static void relax(struct pencil *pencil, const struct way *way)
{
    const struct block *block = &pencil->block;
    const int begin = block->begin[2], planes = block->end[2] - begin;
    const size_t points = (size_t)block->size[0] * (size_t)block->size[1];

    memset(pencil->planes, 0, points * sizeof *pencil->planes);
    for (int n = 0; n < planes; n++) {
        receive_plane(pencil, way);
        if (run_work(pencil->run, PLANE_WORK * (double)points))
            relax_plane(pencil, way, way->upper ? begin + planes - 1 - n : begin + n);
        send_plane(pencil, way);
    }
}

void lu_relax(struct pencil *pencil)
{
    const int *before = pencil->before, *after = pencil->after;
    const struct way lower = {false,
                              {before[0], before[1]},
                              {after[0], after[1]},
                              LOWER_TAG,
                              factors_of(&pencil->flow, false)};
    const struct way upper = {true,
                              {after[0], after[1]},
                              {before[0], before[1]},
                              UPPER_TAG,
                              factors_of(&pencil->flow, true)};

    relax(pencil, &lower);
    relax(pencil, &upper);
}
