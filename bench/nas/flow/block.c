#include "nas/flow/block.h"

#include <math.h>
#include <string.h>

#define ARRAYS (3 * COMPONENTS + DIRECTIONS + 4)
#define LINE_DOUBLES 8

struct span span_of(int points, int index, int count)
{
    int least = points / count, rest = points % count;
    int first = index * least + (index < rest ? index : rest);

    return (struct span){first, first + least + (index < rest ? 1 : 0)};
}

/* Of one array: an odd number of cache lines, so that the same point of different arrays does not
 * fall into the same set of a cache. */
static size_t array_doubles(const int size[DIRECTIONS])
{
    size_t points = 1;

    for (int d = 0; d < DIRECTIONS; d++)
        points *= (size_t)size[d] + 2 * HALO;
    return ((points + LINE_DOUBLES - 1) / LINE_DOUBLES | 1) * LINE_DOUBLES;
}

uint64_t block_bytes(const int size[DIRECTIONS])
{
    return ARRAYS * sizeof(double) * (uint64_t)array_doubles(size);
}

static void lay_out(struct block *block, double *memory)
{
    const size_t doubles = array_doubles(block->size);
    const ptrdiff_t first = HALO * (block->step[0] + block->step[1] + block->step[2]);
    double **arrays[] = {block->u, block->rhs, block->forcing, block->velocity};
    const int counts[] = {COMPONENTS, COMPONENTS, COMPONENTS, DIRECTIONS};
    double *next = memory + first;

    for (int kind = 0; kind < 4; kind++)
        for (int i = 0; i < counts[kind]; i++, next += doubles)
            arrays[kind][i] = next;
    block->inverse_density = next;
    block->kinetic = next + doubles;
    block->pressure = next + 2 * doubles;
    block->sound = next + 3 * doubles;
    /* Nothing outside of the grid is ever used, but some of it is multiplied by 0. */
    for (int m = 0; m < COMPONENTS; m++)
        for (size_t i = 0; i < doubles; i++)
            block->u[m][(ptrdiff_t)i - first] = 1;
}

typedef void point_values(const struct flow *flow, const int point[DIRECTIONS],
                          double u[COMPONENTS]);

/* Sets u inside the grid, halo included. */
static void set_u(struct block *block, const struct flow *flow, point_values *values)
{
    int low[DIRECTIONS], high[DIRECTIONS];
    double u[COMPONENTS];

    for (int d = 0; d < DIRECTIONS; d++) {
        low[d] = block->origin[d] < HALO ? -block->origin[d] : -HALO;
        high[d] = block->size[d] + HALO;
        if (high[d] > flow->points - block->origin[d])
            high[d] = flow->points - block->origin[d];
    }
    for (int k = low[2]; k < high[2]; k++)
        for (int j = low[1]; j < high[1]; j++)
            for (int i = low[0]; i < high[0]; i++) {
                values(flow,
                       (int[]){block->origin[0] + i, block->origin[1] + j, block->origin[2] + k},
                       u);
                for (int m = 0; m < COMPONENTS; m++)
                    block->u[m][block_at(block, i, j, k)] = u[m];
            }
}

/* The forcing is what makes the right-hand side of the steady solution 0. */
static void set_forcing(struct block *block, const struct flow *flow)
{
    const struct flow whole_step = flow_of(flow->points, 1);

    set_u(block, flow, flow_exact_at);
    block_right_hand_side(block, &whole_step, NULL);
    for (int m = 0; m < COMPONENTS; m++)
        for (int k = block->begin[2]; k < block->end[2]; k++)
            for (int j = block->begin[1]; j < block->end[1]; j++)
                for (int i = block->begin[0]; i < block->end[0]; i++) {
                    ptrdiff_t at = block_at(block, i, j, k);

                    block->forcing[m][at] = -block->rhs[m][at];
                }
}

void block_make(struct block *block, struct run *run, const struct flow *flow,
                const struct span spans[DIRECTIONS])
{
    ptrdiff_t step = 1;

    *block = (struct block){.size = {0}};
    for (int d = 0; d < DIRECTIONS; d++) {
        block->size[d] = spans[d].end - spans[d].first;
        block->origin[d] = spans[d].first;
        block->begin[d] = spans[d].first == 0 ? 1 : 0;
        block->end[d] = block->size[d] - (spans[d].end == flow->points ? 1 : 0);
        block->step[d] = step;
        step *= block->size[d] + 2 * HALO;
    }
    lay_out(block, run_doubles(run, ARRAYS * array_doubles(block->size)));
    set_forcing(block, flow);
}

void block_initialize(struct block *block, const struct flow *flow)
{
    set_u(block, flow, flow_initial);
}

void block_add_errors(const struct block *block, const struct flow *flow, double sums[COMPONENTS])
{
    double exact[COMPONENTS];

    for (int k = block->begin[2]; k < block->end[2]; k++)
        for (int j = block->begin[1]; j < block->end[1]; j++)
            for (int i = block->begin[0]; i < block->end[0]; i++) {
                flow_exact_at(
                    flow, (int[]){block->origin[0] + i, block->origin[1] + j, block->origin[2] + k},
                    exact);
                for (int m = 0; m < COMPONENTS; m++) {
                    double error = block->u[m][block_at(block, i, j, k)] - exact[m];

                    sums[m] += error * error;
                }
            }
}

void block_add_residuals(const struct block *block, double sums[COMPONENTS])
{
    for (int m = 0; m < COMPONENTS; m++)
        for (int k = block->begin[2]; k < block->end[2]; k++)
            for (int j = block->begin[1]; j < block->end[1]; j++)
                for (int i = block->begin[0]; i < block->end[0]; i++) {
                    double residual = block->rhs[m][block_at(block, i, j, k)];

                    sums[m] += residual * residual;
                }
}

void flow_norms(struct run *run, const struct flow *flow, const double sums[COMPONENTS],
                double norms[COMPONENTS])
{
    double inside = pow(flow->points - 2, DIRECTIONS);

    IN_MPI(run, MPI_Allreduce(sums, norms, COMPONENTS, MPI_DOUBLE, MPI_SUM, run->comm));
    for (int m = 0; m < COMPONENTS; m++)
        norms[m] = sqrt(norms[m] / inside);
}

ptrdiff_t block_pack(const struct block *block, double *const fields[COMPONENTS],
                     const int low[DIRECTIONS], const int high[DIRECTIONS], double *buffer)
{
    double *next = buffer;

    for (int m = 0; m < COMPONENTS; m++)
        for (int k = low[2]; k < high[2]; k++)
            for (int j = low[1]; j < high[1]; j++)
                for (int i = low[0]; i < high[0]; i++)
                    *next++ = fields[m][block_at(block, i, j, k)];
    return next - buffer;
}

ptrdiff_t block_unpack(const struct block *block, double *const fields[COMPONENTS],
                       const int low[DIRECTIONS], const int high[DIRECTIONS], const double *buffer)
{
    const double *next = buffer;

    for (int m = 0; m < COMPONENTS; m++)
        for (int k = low[2]; k < high[2]; k++)
            for (int j = low[1]; j < high[1]; j++)
                for (int i = low[0]; i < high[0]; i++)
                    fields[m][block_at(block, i, j, k)] = *next++;
    return next - buffer;
}
