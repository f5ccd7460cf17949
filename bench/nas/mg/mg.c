/*
 * MG, "multigrid": V-cycles on a periodic cube of 2^k points a side. The ranks share the cube as a
 * lattice of boxes and exchange faces with their neighbours after every operator. Grids with fewer
 * points along an axis than there are ranks are not worth sharing: every rank has them whole, and
 * all do the same.
 */
#include "nas/mg/mg.h"

#include "nas/mg/box.h"
#include "nas/mg/charges.h"
#include "nas/mg/stencil.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LEVELS_MAX 12
#define OPERATIONS_PER_POINT 58
#define TOLERANCE 1e-8

/* For each point of the result. */
#define RESIDUAL_WORK 2.6
#define SMOOTH_WORK 2.5
#define RESTRICT_WORK 10.6
#define INTERPOLATE_WORK 0.9
#define NORM_WORK 0.9

/* The weights of the smoother in the small and the large classes. */
static const double smoother_small[3] = {-3.0 / 8.0, 1.0 / 32.0, -1.0 / 64.0};
static const double smoother_large[3] = {-3.0 / 17.0, 1.0 / 33.0, -1.0 / 61.0};

static const struct parameters {
    int side_log2;
    int iterations;
    const double *smoother;
    double residual;
} classes[CLASS_COUNT] = {
    [CLASS_S] = {5, 4, smoother_small, 0.5307707005734e-04},
    [CLASS_W] = {7, 4, smoother_small, 0.6467329375339e-05},
    [CLASS_A] = {8, 4, smoother_small, 0.2433365309069e-05},
    [CLASS_B] = {8, 20, smoother_large, 0.1800564401355e-05},
    [CLASS_C] = {9, 20, smoother_large, 0.5706732285740e-06},
    [CLASS_D] = {10, 50, smoother_large, 0.1583275060440e-09},
};

/* A grid of the hierarchy. */
struct level {
    struct box box;
    bool whole; /* on every rank, instead of shared */
    double *u;
    double *r;
};

struct mg {
    struct run *run;
    struct lattice lattice;
    const double *smoother;
    int top; /* levels[k] has 2^k points a side, for k from 1 to this */
    struct level levels[LEVELS_MAX];
    double *v; /* the right-hand side */
    /* The coarsest level that is shared, as it is on every rank; `gathered.u` is NULL if no level
     * is whole. */
    int coarsest_shared;
    struct level gathered;
    double *blocks; /* what is gathered, rank by rank */
    double *scratch;
    double *buffer;
};

static int largest(const int along[AXES])
{
    int most = along[0] > along[1] ? along[0] : along[1];

    return along[2] > most ? along[2] : most;
}

static int plan(const struct job *job, struct plan *plan, struct failure *failure)
{
    const struct parameters *parameters = &classes[job->class];
    const int side = 1 << parameters->side_log2;
    int along[AXES];

    lattice_share(job->ranks, along);
    if (2 * largest(along) > side)
        return failure_set(failure, "mg class %c has %d points a side: too few for %d ranks",
                           CLASS_LETTERS[job->class], side, job->ranks);
    uint64_t points = 1;

    for (int axis = 0; axis < AXES; axis++)
        points *= (uint64_t)(side / along[axis] + 2);
    snprintf(plan->size, sizeof plan->size, "%dx%dx%d", side, side, side);
    plan->iterations = parameters->iterations;
    /* u and r with all coarser levels, an eighth each, and v */
    plan->rank_bytes = points * sizeof(double) * 10 / 3;
    return 0;
}

/* Fills the shell of a level's u or r. */
static void exchange(struct mg *mg, const struct level *level, double *values)
{
    if (level->whole)
        box_wrap(&level->box, values);
    else
        box_exchange(&level->box, &mg->lattice, values, mg->buffer);
}

static void clear(const struct level *level, double *values)
{
    memset(values, 0, (size_t)level->box.size * sizeof *values);
}

static double points_of(const struct level *level)
{
    return (double)level->box.points[0] * level->box.points[1] * level->box.points[2];
}

static void residual(struct mg *mg, struct level *level, const double *v)
{
    if (run_work(mg->run, RESIDUAL_WORK * points_of(level)))
        stencil_residual(&level->box, level->u, v, level->r, mg->scratch);
    exchange(mg, level, level->r);
}

static void smooth(struct mg *mg, struct level *level)
{
    if (run_work(mg->run, SMOOTH_WORK * points_of(level)))
        stencil_smooth(&level->box, level->r, level->u, mg->smoother, mg->scratch);
    exchange(mg, level, level->u);
}

static void go_coarser(struct mg *mg, const struct level *fine, struct level *coarse)
{
    if (run_work(mg->run, RESTRICT_WORK * points_of(coarse)))
        stencil_restrict(&fine->box, fine->r, &coarse->box, coarse->r, mg->scratch);
    exchange(mg, coarse, coarse->r);
}

static void go_finer(struct mg *mg, const struct level *coarse, struct level *fine)
{
    if (run_work(mg->run, INTERPOLATE_WORK * points_of(fine)))
        stencil_interpolate(&coarse->box, coarse->u, &fine->box, fine->u, mg->scratch);
}

/* Copies the rows of a part of a whole grid, to it or from it. The part starts at `place`, in
 * points, and goes `shell` points further on all sides. */
static void copy_rows(const struct box *whole_box, double *whole, const struct box *box,
                      const int place[AXES], int shell, double *part, bool to_part)
{
    const size_t bytes = (size_t)(box->points[0] + 2 * shell) * sizeof(double);

    for (int k = 1 - shell; k <= box->points[2] + shell; k++)
        for (int j = 1 - shell; j <= box->points[1] + shell; j++) {
            double *row =
                box_row_of(whole_box, whole, place[1] + j, place[2] + k) + place[0] + 1 - shell;

            memcpy(to_part ? part : row, to_part ? row : part, bytes);
            part += box->points[0] + 2 * shell;
        }
}

/* Where the box of a rank starts in the cube, in points. */
static void place_of(const struct mg *mg, const struct box *box, int rank, int place[AXES])
{
    const int *along = mg->lattice.ranks;

    place[0] = rank % along[0] * box->points[0];
    place[1] = rank / along[0] % along[1] * box->points[1];
    place[2] = rank / (along[0] * along[1]) * box->points[2];
}

/* The residual of the coarsest shared level, whole on every rank. */
static void gather(struct mg *mg)
{
    static const int at_start[AXES];
    struct level *shared = &mg->levels[mg->coarsest_shared];
    const struct box *box = &shared->box;
    const int count = box->points[0] * box->points[1] * box->points[2];
    double *mine = mg->blocks + (ptrdiff_t)count * mg->run->ranks;
    int place[AXES];

    copy_rows(box, shared->r, box, at_start, 0, mine, true);
    IN_MPI(mg->run,
           MPI_Allgather(mine, count, MPI_DOUBLE, mg->blocks, count, MPI_DOUBLE, mg->run->comm));
    for (int rank = 0; rank < mg->run->ranks; rank++) {
        place_of(mg, box, rank, place);
        copy_rows(&mg->gathered.box, mg->gathered.r, box, place, 0,
                  mg->blocks + (ptrdiff_t)count * rank, false);
    }
    box_wrap(&mg->gathered.box, mg->gathered.r);
}

/* The correction of that level from the whole one below: this rank takes its box, and its shell. */
static void take_part(struct mg *mg, struct level *fine)
{
    int place[AXES];

    place_of(mg, &fine->box, mg->run->rank, place);
    copy_rows(&mg->gathered.box, mg->gathered.u, &fine->box, place, 1, fine->u, true);
}

/* Residuals down to the coarsest grid. */
static void descend(struct mg *mg)
{
    for (int k = mg->top; k > 1; k--) {
        struct level *fine = &mg->levels[k];

        if (!fine->whole && mg->levels[k - 1].whole) {
            gather(mg);
            fine = &mg->gathered;
        }
        go_coarser(mg, fine, &mg->levels[k - 1]);
    }
}

/* Corrections up to the finest but one. */
static void ascend(struct mg *mg)
{
    clear(&mg->levels[1], mg->levels[1].u);
    smooth(mg, &mg->levels[1]);
    for (int k = 2; k < mg->top; k++) {
        struct level *fine = &mg->levels[k];

        if (!fine->whole && mg->levels[k - 1].whole) {
            clear(&mg->gathered, mg->gathered.u);
            go_finer(mg, &mg->levels[k - 1], &mg->gathered);
            take_part(mg, fine);
        } else {
            clear(fine, fine->u);
            go_finer(mg, &mg->levels[k - 1], fine);
        }
        residual(mg, fine, fine->r);
        smooth(mg, fine);
    }
}

/* One V-cycle, and the residual after it. */
static void cycle(struct mg *mg)
{
    struct level *top = &mg->levels[mg->top];

    descend(mg);
    ascend(mg);
    go_finer(mg, &mg->levels[mg->top - 1], top);
    residual(mg, top, mg->v);
    smooth(mg, top);
    residual(mg, top, mg->v);
}

static double sum_of_squares(const struct level *level)
{
    const struct box *box = &level->box;
    double sum = 0;

    for (int k = 1; k <= box->points[2]; k++)
        for (int j = 1; j <= box->points[1]; j++) {
            const double *row = box_row(box, level->r, j, k);

            for (int i = 1; i <= box->points[0]; i++)
                sum += row[i] * row[i];
        }
    return sum;
}

/* The root of the mean square of the residual on the finest grid. */
static double residual_norm(struct mg *mg)
{
    const struct level *top = &mg->levels[mg->top];
    double sum = 0, total;

    if (run_work(mg->run, NORM_WORK * points_of(top)))
        sum = sum_of_squares(top);
    IN_MPI(mg->run, MPI_Allreduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, mg->run->comm));
    return sqrt(total / ldexp(1, AXES * mg->top));
}

static void allocate_level(struct run *run, struct level *level)
{
    level->u = run_doubles(run, (size_t)level->box.size);
    level->r = run_doubles(run, (size_t)level->box.size);
}

static void allocate(struct mg *mg)
{
    static const int alone[AXES] = {1, 1, 1};
    struct run *run = mg->run;
    const int most = largest(mg->lattice.ranks);
    const struct box *top = &mg->levels[mg->top].box;

    for (int k = 1; k <= mg->top; k++) {
        struct level *level = &mg->levels[k];

        level->whole = 1 << k < most;
        level->box = box_make(1 << k, level->whole ? alone : mg->lattice.ranks);
        allocate_level(run, level);
    }
    mg->v = run_doubles(run, (size_t)top->size);
    mg->scratch = run_doubles(run, STENCIL_SCRATCH_ROWS * (size_t)top->width);
    mg->buffer = run_doubles(run, box_buffer_count(top));
    if (!mg->levels[1].whole)
        return;
    while (mg->levels[mg->coarsest_shared].whole || mg->coarsest_shared == 0)
        mg->coarsest_shared++;
    mg->gathered.whole = true;
    mg->gathered.box = box_make(1 << mg->coarsest_shared, alone);
    allocate_level(run, &mg->gathered);
    mg->blocks = run_doubles(run, ((size_t)1 << AXES * mg->coarsest_shared) +
                                      (size_t)mg->levels[mg->coarsest_shared].box.size);
}

/* No correction yet, and the charges. */
static void start(struct mg *mg)
{
    struct level *top = &mg->levels[mg->top];

    clear(top, top->u);
    charges_place(&top->box, &mg->lattice, 1 << mg->top, mg->v);
    exchange(mg, top, mg->v);
}

static void run(struct run *run)
{
    const struct parameters *parameters = &classes[run->job.class];
    struct mg mg = {.run = run,
                    .lattice = lattice_make(run),
                    .smoother = parameters->smoother,
                    .top = parameters->side_log2};
    struct level *top = &mg.levels[mg.top];

    allocate(&mg);
    start(&mg);
    residual(&mg, top, mg.v);
    cycle(&mg); /* warm-up */
    start(&mg);

    run_start(run);
    residual(&mg, top, mg.v);
    residual_norm(&mg);
    while (run_next(run))
        cycle(&mg);
    double norm = residual_norm(&mg);

    run_stop(run);

    run->operations = (double)OPERATIONS_PER_POINT * parameters->iterations *
                      ldexp(1, AXES * parameters->side_log2);
    run_check(run, "residual", norm, parameters->residual, TOLERANCE);
}

const struct program program_mg = {
    .name = "mg",
    .title = "multigrid: faces of all sizes between neighbours",
    .operation = "floating point",
    .ranks = RANKS_POWER_OF_TWO,
    .plan = plan,
    .run = run,
};
