/*
 * CG, "conjugate gradient": inverse iteration for the smallest eigenvalue of a random sparse
 * matrix, with 25 steps of conjugate gradients each to solve A z = x.
 *
 * The ranks form a grid with as many columns as rows, or twice as many; each has a block of the
 * matrix. Vectors are spread over the columns of the grid, the same in each row. A product sums
 * along the rows of the grid, by exchanges with partners 1, 2, 4, ... columns away, and then swaps
 * across the diagonal, so that the result is spread like the vector again.
 */
#include "nas/cg/cg.h"

#include "nas/cg/matrix.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define STEPS 25
#define TOLERANCE 1e-10
#define MESSAGE_TAG 1
#define ENTRY_WORK 1.1 /* for each entry of the matrix in a product */

static const struct parameters {
    struct matrix_kind matrix;
    int iterations;
    double zeta;
} classes[CLASS_COUNT] = {
    [CLASS_S] = {{1400, 7, 10}, 15, 8.5971775078648},
    [CLASS_W] = {{7000, 8, 12}, 15, 10.362595087124},
    [CLASS_A] = {{14000, 11, 20}, 15, 17.130235054029},
    [CLASS_B] = {{75000, 13, 60}, 75, 22.712745482631},
    [CLASS_C] = {{150000, 15, 110}, 75, 28.973605592845},
    [CLASS_D] = {{1500000, 21, 500}, 100, 52.514532105794},
};

/* A rank's place in the grid of ranks, and what it exchanges with which ranks. */
struct grid {
    int rows;
    int columns;
    struct span my_rows;    /* of the matrix */
    struct span my_columns; /* of the matrix */
    struct span mine; /* what is left of my rows' sums to this rank after the first exchange */
    int row;
    int column;
    int mirror; /* the rank across the diagonal */
};

struct cg {
    struct run *run;
    struct grid grid;
    struct matrix matrix;
    /* Spread over the columns of the grid: */
    double *x;
    double *z;
    double *p;
    double *q;
    double *r;
    /* As long as the rows of the block: */
    double *product;
    double *partner;
};

/* Part `index` of `count` numbers in `parts`; the first parts are the larger ones. */
static struct span part_of(int count, int parts, int index)
{
    int size = count / parts;
    int larger = count % parts;

    if (index < larger)
        return (struct span){index * (size + 1), size + 1};
    return (struct span){larger * (size + 1) + (index - larger) * size, size};
}

static void set_grid_size(struct grid *grid, int ranks)
{
    grid->rows = grid->columns = 1;
    while (grid->rows * grid->columns < ranks) {
        if (grid->columns > grid->rows)
            grid->rows *= 2;
        else
            grid->columns *= 2;
    }
}

static struct grid place_in_grid(int order, int rank, int ranks)
{
    struct grid grid;

    set_grid_size(&grid, ranks);
    grid.row = rank / grid.columns;
    grid.column = rank % grid.columns;
    grid.my_rows = part_of(order, grid.rows, grid.row);
    grid.mine = (struct span){0, grid.my_rows.count};
    if (grid.columns == grid.rows) {
        grid.my_columns = part_of(order, grid.columns, grid.column);
        grid.mirror = grid.column * grid.columns + grid.row;
    } else {
        /* Two columns of the grid share what one would have. */
        struct span both = part_of(order, grid.rows, grid.column / 2);
        struct span half = part_of(both.count, 2, grid.column % 2);

        grid.my_columns = (struct span){both.first + half.first, half.count};
        grid.mine = part_of(grid.my_rows.count, 2, grid.column % 2);
        grid.mirror = grid.column / 2 * grid.columns + 2 * grid.row + grid.column % 2;
    }
    return grid;
}

static int plan(const struct job *job, struct plan *plan, struct failure *failure)
{
    const struct parameters *parameters = &classes[job->class];
    struct grid grid;

    if (job->ranks > parameters->matrix.order)
        return failure_set(failure, "cg class %c has a matrix of %d rows: too few for %d ranks",
                           CLASS_LETTERS[job->class], parameters->matrix.order, job->ranks);
    set_grid_size(&grid, job->ranks);
    snprintf(plan->size, sizeof plan->size, "%d", parameters->matrix.order);
    plan->iterations = parameters->iterations;
    plan->rank_bytes = matrix_bytes(&parameters->matrix, grid.rows, grid.columns) +
                       7 * sizeof(double) * (uint64_t)(parameters->matrix.order / grid.rows + 1);
    return 0;
}

/* The rank in this row of the grid whose column differs in that bit. */
static int partner_of(const struct cg *cg, int bit)
{
    return cg->grid.row * cg->grid.columns + (cg->grid.column ^ bit);
}

/* Sums numbers over the ranks of this row of the grid. */
static void sum_over_row(struct cg *cg, double *sums, int count)
{
    double theirs[2];

    for (int bit = 1; bit < cg->grid.columns; bit *= 2) {
        const int partner = partner_of(cg, bit);

        IN_MPI(cg->run,
               MPI_Sendrecv(sums, count, MPI_DOUBLE, partner, MESSAGE_TAG, theirs, count,
                            MPI_DOUBLE, partner, MESSAGE_TAG, cg->run->comm, MPI_STATUS_IGNORE));
        for (int i = 0; i < count; i++)
            sums[i] += theirs[i];
    }
}

/* Sums the product over the ranks of this row of the grid. Where the grid is twice as wide as
 * high, neighbours give each other a half, and go on with theirs. */
static void sum_product(struct cg *cg)
{
    const struct span mine = cg->grid.mine;
    struct span given = mine;

    if (mine.count < cg->grid.my_rows.count) {
        given.first = mine.first == 0 ? mine.count : 0;
        given.count = cg->grid.my_rows.count - mine.count;
    }
    for (int bit = 1; bit < cg->grid.columns; bit *= 2, given = mine) {
        const int partner = partner_of(cg, bit);
        double *restrict sums = cg->product + mine.first;
        const double *restrict theirs = cg->partner;

        IN_MPI(cg->run, MPI_Sendrecv(cg->product + given.first, given.count, MPI_DOUBLE, partner,
                                     MESSAGE_TAG, cg->partner, mine.count, MPI_DOUBLE, partner,
                                     MESSAGE_TAG, cg->run->comm, MPI_STATUS_IGNORE));
        for (int i = 0; i < mine.count; i++)
            sums[i] += theirs[i];
    }
}

/* result = A * vector, both spread over the columns of the grid. */
static void multiply(struct cg *cg, const double *vector, double *result)
{
    const struct grid *grid = &cg->grid;
    const double *sums = cg->product + grid->mine.first;

    if (run_work(cg->run, ENTRY_WORK * (double)cg->matrix.starts[cg->matrix.rows]))
        matrix_multiply(&cg->matrix, vector, cg->product);
    sum_product(cg);
    if (grid->mirror == cg->run->rank)
        memcpy(result, sums, (size_t)grid->mine.count * sizeof *result);
    else
        IN_MPI(cg->run, MPI_Sendrecv(sums, grid->mine.count, MPI_DOUBLE, grid->mirror, MESSAGE_TAG,
                                     result, grid->my_columns.count, MPI_DOUBLE, grid->mirror,
                                     MESSAGE_TAG, cg->run->comm, MPI_STATUS_IGNORE));
}

/* The part of a scalar product that is here; in four sums, which need not wait for each other. */
static double dot_here(const double *restrict a, const double *restrict b, int count)
{
    double sums[4] = {0};
    int i = 0;

    for (; i + 4 <= count; i += 4)
        for (int lane = 0; lane < 4; lane++)
            sums[lane] += a[i + lane] * b[i + lane];
    for (; i < count; i++)
        sums[0] += a[i] * b[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

static double dot(struct cg *cg, const double *a, const double *b)
{
    double sum = dot_here(a, b, cg->grid.my_columns.count);

    sum_over_row(cg, &sum, 1);
    return sum;
}

/* y += factor * x */
static void add_scaled(double *restrict y, double factor, const double *restrict x, int count)
{
    for (int i = 0; i < count; i++)
        y[i] += factor * x[i];
}

/* Solves A z = x approximately. Returns the norm of x - A z, which the specification wants known.
 */
static double solve(struct cg *cg)
{
    const int count = cg->grid.my_columns.count;
    double *restrict p = cg->p;
    double *restrict r = cg->r;

    memset(cg->z, 0, (size_t)count * sizeof *cg->z);
    memcpy(r, cg->x, (size_t)count * sizeof *r);
    memcpy(p, cg->x, (size_t)count * sizeof *p);
    double rho = dot(cg, r, r);

    for (int step = 0; step < STEPS; step++) {
        multiply(cg, p, cg->q);
        const double alpha = rho / dot(cg, p, cg->q);
        const double rho_before = rho;

        add_scaled(cg->z, alpha, p, count);
        add_scaled(r, -alpha, cg->q, count);
        rho = dot(cg, r, r);
        const double beta = rho / rho_before;

        for (int i = 0; i < count; i++)
            p[i] = r[i] + beta * p[i];
    }
    multiply(cg, cg->z, r);
    for (int i = 0; i < count; i++)
        r[i] = cg->x[i] - r[i];
    return sqrt(dot(cg, r, r));
}

/* One step of the inverse iteration. Returns x z, the inverse of the (shifted) eigenvalue. */
static double iterate(struct cg *cg)
{
    const int count = cg->grid.my_columns.count;
    double sums[2];

    solve(cg);
    sums[0] = dot_here(cg->x, cg->z, count);
    sums[1] = dot_here(cg->z, cg->z, count);
    sum_over_row(cg, sums, 2);
    const double length = sqrt(sums[1]);

    for (int i = 0; i < count; i++)
        cg->x[i] = cg->z[i] / length;
    return sums[0];
}

static void start_vector(struct cg *cg)
{
    for (int i = 0; i < cg->grid.my_columns.count; i++)
        cg->x[i] = 1;
}

static double operations(const struct parameters *parameters)
{
    const double entries = parameters->matrix.nonzeros * (parameters->matrix.nonzeros + 1.0);

    return 2.0 * parameters->iterations * parameters->matrix.order *
           (3 + entries + STEPS * (5 + entries) + 3);
}

static void run(struct run *run)
{
    const struct parameters *parameters = &classes[run->job.class];
    struct cg cg = {.run = run,
                    .grid = place_in_grid(parameters->matrix.order, run->rank, run->ranks)};
    const size_t columns = (size_t)cg.grid.my_columns.count;
    const size_t rows = (size_t)cg.grid.my_rows.count;
    double zeta = 0;

    cg.matrix = matrix_make(run, &parameters->matrix, cg.grid.my_rows, cg.grid.my_columns);
    cg.x = run_doubles(run, columns);
    cg.z = run_doubles(run, columns);
    cg.p = run_doubles(run, columns);
    cg.q = run_doubles(run, columns);
    cg.r = run_doubles(run, columns);
    cg.product = run_doubles(run, rows);
    cg.partner = run_doubles(run, rows);
    start_vector(&cg);
    iterate(&cg); /* warm-up */
    start_vector(&cg);

    run_start(run);
    while (run_next(run))
        zeta = parameters->matrix.shift + 1 / iterate(&cg);
    run_stop(run);

    run->operations = operations(parameters);
    run_check(run, "zeta", zeta, parameters->zeta, TOLERANCE);
}

const struct program program_cg = {
    .name = "cg",
    .title = "conjugate gradients: long messages between pairs",
    .operation = "floating point",
    .ranks = RANKS_POWER_OF_TWO,
    .needs_data = true,
    .plan = plan,
    .run = run,
};
