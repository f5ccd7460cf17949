/*
 * FT, "Fourier transform": transforms a random field once, lets it diffuse step by step in Fourier
 * space, and transforms every step back to take a checksum.
 *
 * The field starts as planes: each rank has some of the z planes, whole. The transform along x and
 * y stays within a plane; then all ranks exchange, so that each has the whole z column of a part of
 * the plane. The columns are written where the exchange wants them, and are in order after it: no
 * copies but the transforms' own. With more ranks than planes, the ranks of a plane share its rows,
 * and exchange between x and y, too.
 */
#include "nas/ft/ft.h"

#include "nas/frame/random.h"
#include "nas/ft/lines.h"
#include "nas/ft/sums.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define DIFFUSION 1e-6
#define CHECKSUM_POINTS 1024
#define TOLERANCE 1e-12

/* For each point. */
#define LINE_WORK 12.5 /* a transform along one axis */
#define DIFFUSE_WORK 1.5
#define DRAW_WORK 1.3

static const struct parameters {
    int nx;
    int ny;
    int nz;
    int iterations;
} classes[CLASS_COUNT] = {
    [CLASS_S] = {64, 64, 64, 6},     [CLASS_W] = {128, 128, 32, 6},
    [CLASS_A] = {256, 256, 128, 6},  [CLASS_B] = {512, 256, 256, 20},
    [CLASS_C] = {512, 512, 512, 20}, [CLASS_D] = {2048, 1024, 1024, 25},
};

/* How the ranks share the field. */
struct layout {
    int stacks;  /* ranks that share the planes, */
    int slices;  /* and ranks that share each plane */
    int planes;  /* of this rank */
    int rows;    /* of each of them, as long as rows are whole */
    int columns; /* of each of them, as long as columns are whole */
    int shaft;   /* how many z columns it has after the exchange */
    int first_plane;
    int first_row;
    int first_column;
    int first_shaft; /* counted through the rank's columns of the plane, row by row */
};

struct ft {
    struct run *run;
    const struct parameters *size;
    struct layout layout;
    MPI_Comm stack; /* the ranks that have the same part of all planes */
    MPI_Comm slice; /* the ranks that share this rank's planes */
    struct lines lines;
    struct complex *spectrum; /* [z][shaft] */
    struct complex *field;
    struct complex *spare; /* for exchanges; `field` itself if there is one rank */
    double *decay_plane;   /* of a step, for each z column: the part of x and y, */
    double *decay_z;       /* and for each z */
    struct complex_sum sums[FT_ITERATIONS_MAX];
};

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static struct layout layout_make(const struct parameters *size, int rank, int ranks)
{
    struct layout layout = {.stacks = smaller(ranks, size->nz)};
    const int stack_place = rank % layout.stacks;
    const int slice_place = rank / layout.stacks;

    layout.slices = ranks / layout.stacks;
    layout.planes = size->nz / layout.stacks;
    layout.rows = size->ny / layout.slices;
    layout.columns = size->nx / layout.slices;
    layout.shaft = (int)((int64_t)layout.columns * size->ny / layout.stacks);
    layout.first_plane = stack_place * layout.planes;
    layout.first_row = slice_place * layout.rows;
    layout.first_column = slice_place * layout.columns;
    layout.first_shaft = stack_place * layout.shaft;
    return layout;
}

static int plan(const struct job *job, struct plan *plan, struct failure *failure)
{
    const struct parameters *size = &classes[job->class];
    const struct layout layout = layout_make(size, 0, job->ranks);
    const uint64_t points = (uint64_t)size->nz * (uint64_t)layout.shaft;
    const int fields = job->ranks == 1 ? 2 : 3;

    if (layout.rows < LANES || layout.columns < LANES || layout.shaft < LANES)
        return failure_set(failure, "ft class %c is too small to be shared by %d ranks",
                           CLASS_LETTERS[job->class], job->ranks);
    snprintf(plan->size, sizeof plan->size, "%dx%dx%d", size->nx, size->ny, size->nz);
    plan->iterations = size->iterations;
    plan->rank_bytes = points * (uint64_t)fields * sizeof(struct complex);
    return 0;
}

/* Points of this rank. */
static double points_of(const struct ft *ft)
{
    return (double)ft->size->nz * ft->layout.shaft;
}

/* Of a plane's transforms on this rank: along both of its axes, unless the ranks share its rows. */
static double plane_work(const struct ft *ft)
{
    return (ft->layout.slices > 1 ? 1 : 2) * LINE_WORK * points_of(ft);
}

/* Sends every rank of `comm` its equal part of `from`. */
static void exchange(struct ft *ft, MPI_Comm comm, int ranks, const struct complex *from,
                     struct complex *to)
{
    const int64_t points = (int64_t)ft->size->nz * ft->layout.shaft;
    const int count = (int)(2 * points / ranks);

    IN_MPI(ft->run, MPI_Alltoall(from, count, MPI_DOUBLE, to, count, MPI_DOUBLE, comm));
}

static void exchange_field(struct ft *ft, MPI_Comm comm, int ranks)
{
    struct complex *received = ft->spare;

    exchange(ft, comm, ranks, ft->field, received);
    ft->spare = ft->field;
    ft->field = received;
}

/* Where x = 0 of a row is, and then every piece of it: a row that is shared by columns lies in one
 * piece for each rank of the slice. */
static struct complex *row_piece(const struct ft *ft, struct complex *plane, int row, int piece)
{
    const struct layout *layout = &ft->layout;

    return plane + ((ptrdiff_t)piece * layout->rows + row) * layout->columns;
}

/* Transforms LANES rows along x, where they are. */
static void transform_rows(struct ft *ft, struct complex *plane, int row, enum direction direction)
{
    const int columns = ft->layout.columns;
    double *restrict re = ft->lines.re;
    double *restrict im = ft->lines.im;

    for (int piece = 0; piece < ft->layout.slices; piece++)
        for (int x = 0; x < columns; x++)
            for (int lane = 0; lane < LANES; lane++) {
                const struct complex value = row_piece(ft, plane, row + lane, piece)[x];
                const int at = (piece * columns + x) * LANES + lane;

                re[at] = value.re;
                im[at] = value.im;
            }
    lines_transform(&ft->lines, ft->size->nx, direction);
    re = ft->lines.re;
    im = ft->lines.im;
    for (int piece = 0; piece < ft->layout.slices; piece++)
        for (int lane = 0; lane < LANES; lane++) {
            struct complex *restrict to = row_piece(ft, plane, row + lane, piece);
            const ptrdiff_t from = (ptrdiff_t)piece * columns * LANES + lane;

            for (int x = 0; x < columns; x++)
                to[x] = (struct complex){re[from + x * LANES], im[from + x * LANES]};
        }
}

/* Reads or writes LANES neighbours at `step` from each other. */
static void read_lanes(struct lines *lines, const struct complex *from, ptrdiff_t step, int first,
                       int count)
{
    double *restrict re = lines->re + (ptrdiff_t)first * LANES;
    double *restrict im = lines->im + (ptrdiff_t)first * LANES;

    for (int i = 0; i < count; i++, from += step, re += LANES, im += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            re[lane] = from[lane].re;
            im[lane] = from[lane].im;
        }
}

static void write_lanes(const struct lines *lines, struct complex *to, ptrdiff_t step, int first,
                        int count)
{
    const double *restrict re = lines->re + (ptrdiff_t)first * LANES;
    const double *restrict im = lines->im + (ptrdiff_t)first * LANES;

    for (int i = 0; i < count; i++, to += step, re += LANES, im += LANES)
        for (int lane = 0; lane < LANES; lane++)
            to[lane] = (struct complex){re[lane], im[lane]};
}

/* Where the z column of row `y` and `column` of a plane is in the order of the exchange between
 * stacks: part by part of the plane, and in each plane by plane. */
static struct complex *shaft_place(const struct ft *ft, struct complex *field, int plane, int y,
                                   int column)
{
    const struct layout *layout = &ft->layout;
    const int64_t shaft = (int64_t)y * layout->columns + column;
    const int64_t part = shaft / layout->shaft;

    return field + (part * layout->planes + plane) * layout->shaft + shaft % layout->shaft;
}

/* How many rows of a plane one part of it covers at a time, so that their places are evenly
 * spaced. */
static int rows_together(const struct ft *ft)
{
    const int rows = ft->layout.shaft / ft->layout.columns;

    return rows > 1 ? rows : 1;
}

/* Transforms the columns of a plane along y, from the plane to the order of the exchange. */
static void transform_columns_out(struct ft *ft, const struct complex *plane_start, int plane,
                                  struct complex *to)
{
    const int columns = ft->layout.columns;
    const int together = rows_together(ft);

    for (int column = 0; column < columns; column += LANES) {
        read_lanes(&ft->lines, plane_start + column, columns, 0, ft->size->ny);
        lines_transform(&ft->lines, ft->size->ny, FORWARD);
        for (int y = 0; y < ft->size->ny; y += together)
            write_lanes(&ft->lines, shaft_place(ft, to, plane, y, column), columns, y, together);
    }
}

/* And back. */
static void transform_columns_in(struct ft *ft, struct complex *from, int plane,
                                 struct complex *plane_start)
{
    const int columns = ft->layout.columns;
    const int together = rows_together(ft);

    for (int column = 0; column < columns; column += LANES) {
        for (int y = 0; y < ft->size->ny; y += together)
            read_lanes(&ft->lines, shaft_place(ft, from, plane, y, column), columns, y, together);
        lines_transform(&ft->lines, ft->size->ny, INVERSE);
        write_lanes(&ft->lines, plane_start + column, columns, 0, ft->size->ny);
    }
}

static struct complex *plane_of(const struct ft *ft, struct complex *field, int plane)
{
    return field + (ptrdiff_t)plane * ft->layout.rows * ft->size->nx;
}

static void transform_plane_rows(struct ft *ft, struct complex *plane, enum direction direction)
{
    for (int row = 0; row < ft->layout.rows; row += LANES)
        transform_rows(ft, plane, row, direction);
}

/* field -> spectrum */
static void transform(struct ft *ft)
{
    const struct layout *layout = &ft->layout;
    const bool is_shared = layout->slices > 1;

    if (is_shared) { /* of one plane each */
        if (run_work(ft->run, LINE_WORK * points_of(ft)))
            transform_plane_rows(ft, ft->field, FORWARD);
        exchange_field(ft, ft->slice, layout->slices);
    }
    if (run_work(ft->run, plane_work(ft)))
        for (int plane = 0; plane < layout->planes; plane++) {
            if (!is_shared)
                transform_plane_rows(ft, plane_of(ft, ft->field, plane), FORWARD);
            transform_columns_out(ft, plane_of(ft, ft->field, plane), plane, ft->spare);
        }
    if (layout->stacks > 1)
        exchange(ft, ft->stack, layout->stacks, ft->spare, ft->field);
    if (run_work(ft->run, LINE_WORK * points_of(ft)))
        for (int shaft = 0; shaft < layout->shaft; shaft += LANES) {
            read_lanes(&ft->lines, ft->field + shaft, layout->shaft, 0, ft->size->nz);
            lines_transform(&ft->lines, ft->size->nz, FORWARD);
            write_lanes(&ft->lines, ft->spectrum + shaft, layout->shaft, 0, ft->size->nz);
        }
}

/* A step of the diffusion of LANES columns of the spectrum; they are left in the lines, too. */
static void diffuse(struct ft *ft, int shaft)
{
    const double *restrict decay = ft->decay_plane + shaft;
    double *restrict re = ft->lines.re;
    double *restrict im = ft->lines.im;
    struct complex *restrict values = ft->spectrum + shaft;

    for (int z = 0; z < ft->size->nz; z++, values += ft->layout.shaft, re += LANES, im += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            const double factor = decay[lane] * ft->decay_z[z];

            re[lane] = values[lane].re *= factor;
            im[lane] = values[lane].im *= factor;
        }
}

/* spectrum, a step later -> field; the inverse, without its factor */
static void diffuse_and_transform_back(struct ft *ft)
{
    const struct layout *layout = &ft->layout;
    const bool is_shared = layout->slices > 1;
    struct complex *planes;

    if (run_work(ft->run, (LINE_WORK + DIFFUSE_WORK) * points_of(ft)))
        for (int shaft = 0; shaft < layout->shaft; shaft += LANES) {
            diffuse(ft, shaft);
            lines_transform(&ft->lines, ft->size->nz, INVERSE);
            write_lanes(&ft->lines, ft->field + shaft, layout->shaft, 0, ft->size->nz);
        }
    if (layout->stacks > 1)
        exchange_field(ft, ft->stack, layout->stacks);
    planes = ft->spare;
    if (run_work(ft->run, plane_work(ft)))
        for (int plane = 0; plane < layout->planes; plane++) {
            transform_columns_in(ft, ft->field, plane, plane_of(ft, planes, plane));
            if (!is_shared)
                transform_plane_rows(ft, plane_of(ft, planes, plane), INVERSE);
        }
    ft->spare = ft->field;
    ft->field = planes;
    if (is_shared) {
        exchange_field(ft, ft->slice, layout->slices);
        if (run_work(ft->run, LINE_WORK * points_of(ft)))
            transform_plane_rows(ft, ft->field, INVERSE);
    }
}

/* The mean of points that are spread over the field. Valid on rank 0. */
static struct complex_sum checksum(struct ft *ft)
{
    const struct parameters *size = ft->size;
    const struct layout *layout = &ft->layout;
    const double points = (double)size->nx * size->ny * size->nz;
    double sum[2] = {0}, total[2] = {0};

    for (int i = 1; i <= CHECKSUM_POINTS; i++) {
        const int x = i % size->nx;
        const int row = 3 * i % size->ny - layout->first_row;
        const int plane = 5 * i % size->nz - layout->first_plane;

        if (row < 0 || row >= layout->rows || plane < 0 || plane >= layout->planes)
            continue;
        const struct complex *value =
            row_piece(ft, plane_of(ft, ft->field, plane), row, x / layout->columns) +
            x % layout->columns;

        sum[0] += value->re;
        sum[1] += value->im;
    }
    IN_MPI(ft->run, MPI_Reduce(sum, total, 2, MPI_DOUBLE, MPI_SUM, 0, ft->run->comm));
    return (struct complex_sum){total[0] / points, total[1] / points};
}

/* The random field, row by row: the real and the imaginary part of each point. */
static void draw_field(struct ft *ft)
{
    const struct layout *layout = &ft->layout;
    const struct parameters *size = ft->size;

    for (int plane = 0; plane < layout->planes; plane++)
        for (int row = 0; row < layout->rows; row++) {
            const int64_t rows_before =
                (int64_t)(layout->first_plane + plane) * size->ny + layout->first_row + row;
            uint64_t state =
                random_skip(RANDOM_SEED, 2 * (uint64_t)rows_before * (uint64_t)size->nx);

            for (int piece = 0; piece < layout->slices; piece++)
                random_fill(&state, 2 * (size_t)layout->columns,
                            (double *)row_piece(ft, plane_of(ft, ft->field, plane), row, piece));
        }
}

/* The decay of one wave in one step. `index` of `count`: the upper half are negative waves. */
static double decay(int index, int count)
{
    const double pi = acos(-1);
    const int wave = index < count / 2 ? index : index - count;

    return exp(-4 * DIFFUSION * pi * pi * wave * wave);
}

static void set_decay(struct ft *ft)
{
    const struct layout *layout = &ft->layout;

    for (int i = 0; i < layout->shaft; i++) {
        const int column = (layout->first_shaft + i) % layout->columns + layout->first_column;
        const int row = (layout->first_shaft + i) / layout->columns;

        ft->decay_plane[i] = decay(column, ft->size->nx) * decay(row, ft->size->ny);
    }
    for (int z = 0; z < ft->size->nz; z++)
        ft->decay_z[z] = decay(z, ft->size->nz);
}

static void start(struct ft *ft)
{
    set_decay(ft);
    if (run_work(ft->run, DRAW_WORK * points_of(ft)))
        draw_field(ft);
    transform(ft);
}

static void allocate(struct ft *ft)
{
    const struct parameters *size = ft->size;
    struct run *run = ft->run;
    const size_t points = (size_t)size->nz * (size_t)ft->layout.shaft;
    const int longest = size->nx > size->nz ? size->nx : size->nz;

    ft->lines = lines_make(run, longest > size->ny ? longest : size->ny);
    ft->spectrum = run_memory(run, points, sizeof *ft->spectrum);
    ft->field = run_memory(run, points, sizeof *ft->field);
    ft->spare = run->ranks > 1 ? run_memory(run, points, sizeof *ft->spare) : ft->field;
    ft->decay_plane = run_doubles(run, (size_t)ft->layout.shaft);
    ft->decay_z = run_doubles(run, (size_t)size->nz);
}

static double operations(const struct parameters *size)
{
    const double points = (double)size->nx * size->ny * size->nz;

    /* As NPB counts: not what a transform with four branches needs. */
    return points *
           (14.8157 + 7.19641 * log(points) + (5.23518 + 7.21113 * log(points)) * size->iterations);
}

static void check(struct ft *ft)
{
    const struct complex_sum *published = ft_sums[ft->run->job.class];
    char name[RUN_NAME_MAX];

    for (int i = 0; i < ft->size->iterations; i++) {
        snprintf(name, sizeof name, "checksum %d re", i + 1);
        run_check(ft->run, name, ft->sums[i].re, published[i].re, TOLERANCE);
        snprintf(name, sizeof name, "checksum %d im", i + 1);
        run_check(ft->run, name, ft->sums[i].im, published[i].im, TOLERANCE);
    }
}

static void run(struct run *run)
{
    const struct parameters *size = &classes[run->job.class];
    struct ft ft = {.run = run, .size = size, .layout = layout_make(size, run->rank, run->ranks)};
    const int stack_place = run->rank % ft.layout.stacks;
    const int slice_place = run->rank / ft.layout.stacks;

    allocate(&ft);
    MPI_Comm_split(run->comm, slice_place, stack_place, &ft.stack);
    MPI_Comm_split(run->comm, stack_place, slice_place, &ft.slice);
    start(&ft); /* warm-up */

    run_start(run);
    start(&ft);
    while (run_next(run)) {
        diffuse_and_transform_back(&ft);
        ft.sums[run->iteration - 1] = checksum(&ft);
    }
    run_stop(run);

    run->operations = operations(size);
    check(&ft);
    MPI_Comm_free(&ft.stack);
    MPI_Comm_free(&ft.slice);
}

const struct program program_ft = {
    .name = "ft",
    .title = "3D Fourier transforms: long messages, all to all",
    .operation = "floating point",
    .ranks = RANKS_POWER_OF_TWO,
    .plan = plan,
    .run = run,
};
