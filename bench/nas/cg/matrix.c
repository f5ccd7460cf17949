#include "nas/cg/matrix.h"

#include "nas/frame/random.h"

#include <math.h>
#include <stdlib.h>

/* The condition number's inverse, and what the specification sets of each vector. */
#define RCOND 0.1
#define VECTOR_MIDDLE 0.5
#define NONZEROS_MAX 32
/* Entries of the matrix that are fetched before they are used. The processor sees the streams, but
 * stops at each page: class A takes 0.6 s with this and 0.9 s without. */
#define PREFETCH_AHEAD 256

/* Draws the vectors one after the other. */
struct drawing {
    const struct matrix_kind *kind;
    uint64_t state;
    int range; /* places are drawn from the power of two that holds the order */
    int count; /* entries of the vector drawn last */
    int places[NONZEROS_MAX];
    double values[NONZEROS_MAX];
};

/* Those entries of all vectors that matter for a block. */
struct vectors {
    const struct matrix_kind *kind;
    struct span rows;
    struct span columns;
    /* In the columns of the block, vector by vector. */
    int64_t *column_starts;
    int *column_places;
    double *column_values;
    /* In the rows of the block, row by row: of which vector, and the value times its weight. */
    int64_t *row_starts;
    int *row_vectors;
    double *row_values;
};

/* A row of the block while it is summed up. */
struct gathering {
    double *sums;
    int *seen_in; /* the last row, from 1, that had an entry in each column */
    int *places;
    int count;
};

static struct drawing drawing_start(const struct matrix_kind *kind)
{
    struct drawing drawing = {.kind = kind, .state = RANDOM_SEED, .range = 1};

    while (drawing.range < kind->order)
        drawing.range *= 2;
    random_next(&drawing.state); /* the program's first number is not the matrix's */
    return drawing;
}

static int find_place(const struct drawing *drawing, int place)
{
    int i = 0;

    while (i < drawing->count && drawing->places[i] != place)
        i++;
    return i;
}

/* Vector `index`: random values at random places, and a fixed one in the middle of its own. */
static void draw_vector(struct drawing *drawing, int index)
{
    drawing->count = 0;
    while (drawing->count < drawing->kind->nonzeros) {
        double value = random_next(&drawing->state);
        int place = (int)(drawing->range * random_next(&drawing->state));

        if (place >= drawing->kind->order || find_place(drawing, place) < drawing->count)
            continue;
        drawing->places[drawing->count] = place;
        drawing->values[drawing->count++] = value;
    }
    int at = find_place(drawing, index);

    drawing->places[at] = index;
    drawing->values[at] = VECTOR_MIDDLE;
    drawing->count += at == drawing->count;
}

static bool is_within(struct span span, int place)
{
    return place >= span.first && place < span.first + span.count;
}

/* Counts become starts: counts[i] is that of i - 1 before. */
static void add_up(int64_t *counts, int count)
{
    for (int i = 0; i < count; i++)
        counts[i + 1] += counts[i];
}

static void count_entries(struct vectors *vectors)
{
    struct drawing drawing = drawing_start(vectors->kind);

    for (int index = 0; index < vectors->kind->order; index++) {
        draw_vector(&drawing, index);
        for (int i = 0; i < drawing.count; i++) {
            int place = drawing.places[i];

            if (is_within(vectors->columns, place))
                vectors->column_starts[index + 1]++;
            if (is_within(vectors->rows, place))
                vectors->row_starts[place - vectors->rows.first + 1]++;
        }
    }
    add_up(vectors->column_starts, vectors->kind->order);
    add_up(vectors->row_starts, vectors->rows.count);
}

/* Draws them again; `next` has the start of each row. */
static void keep_entries(struct vectors *vectors, int64_t *next)
{
    struct drawing drawing = drawing_start(vectors->kind);
    const double ratio = pow(RCOND, 1.0 / vectors->kind->order);
    double weight = 1;
    int64_t at = 0;

    for (int index = 0; index < vectors->kind->order; index++, weight *= ratio) {
        draw_vector(&drawing, index);
        for (int i = 0; i < drawing.count; i++) {
            int place = drawing.places[i];

            if (is_within(vectors->columns, place)) {
                vectors->column_places[at] = place - vectors->columns.first;
                vectors->column_values[at++] = drawing.values[i];
            }
            if (is_within(vectors->rows, place)) {
                int64_t slot = next[place - vectors->rows.first]++;

                vectors->row_vectors[slot] = index;
                vectors->row_values[slot] = drawing.values[i] * weight;
            }
        }
    }
}

static struct vectors draw_vectors(struct run *run, const struct matrix_kind *kind,
                                   struct span rows, struct span columns)
{
    struct vectors vectors = {.kind = kind, .rows = rows, .columns = columns};
    const size_t starts = (size_t)rows.count + 1;

    vectors.column_starts = run_memory(run, (size_t)kind->order + 1, sizeof(int64_t));
    vectors.row_starts = run_memory(run, starts, sizeof(int64_t));
    count_entries(&vectors);
    const size_t in_columns = (size_t)vectors.column_starts[kind->order];
    const size_t in_rows = (size_t)vectors.row_starts[rows.count];

    vectors.column_places = run_ints(run, in_columns);
    vectors.column_values = run_doubles(run, in_columns);
    vectors.row_vectors = run_ints(run, in_rows);
    vectors.row_values = run_doubles(run, in_rows);
    int64_t *next = run_memory(run, starts, sizeof *next);

    for (size_t i = 0; i < starts; i++)
        next[i] = vectors.row_starts[i];
    keep_entries(&vectors, next);
    run_release(run, next);
    return vectors;
}

static void release_vectors(struct run *run, struct vectors *vectors)
{
    run_release(run, vectors->column_starts);
    run_release(run, vectors->column_places);
    run_release(run, vectors->column_values);
    run_release(run, vectors->row_starts);
    run_release(run, vectors->row_vectors);
    run_release(run, vectors->row_values);
}

static void gather_entry(struct gathering *gathering, int row, int place, double value)
{
    if (gathering->seen_in[place] != row + 1) {
        gathering->seen_in[place] = row + 1;
        gathering->sums[place] = 0;
        gathering->places[gathering->count++] = place;
    }
    gathering->sums[place] += value;
}

/* Sums the outer products of the vectors that have an entry in this row of the block. */
static void gather_row(struct gathering *gathering, const struct vectors *vectors, int row)
{
    const int diagonal = row + vectors->rows.first;

    gathering->count = 0;
    for (int64_t i = vectors->row_starts[row]; i < vectors->row_starts[row + 1]; i++) {
        const int64_t end = vectors->column_starts[vectors->row_vectors[i] + 1];

        for (int64_t j = vectors->column_starts[vectors->row_vectors[i]]; j < end; j++)
            gather_entry(gathering, row, vectors->column_places[j],
                         vectors->row_values[i] * vectors->column_values[j]);
    }
    if (is_within(vectors->columns, diagonal))
        gather_entry(gathering, row, diagonal - vectors->columns.first,
                     RCOND - vectors->kind->shift);
}

static int ascending(const void *left, const void *right)
{
    return *(const int *)left - *(const int *)right;
}

static struct gathering gathering_start(struct run *run, int columns)
{
    return (struct gathering){
        .sums = run_doubles(run, (size_t)columns),
        .seen_in = run_ints(run, (size_t)columns),
        .places = run_ints(run, (size_t)columns),
    };
}

static void gathering_end(struct run *run, struct gathering *gathering)
{
    run_release(run, gathering->sums);
    run_release(run, gathering->seen_in);
    run_release(run, gathering->places);
}

static void count_row_lengths(struct run *run, struct matrix *matrix, const struct vectors *vectors)
{
    struct gathering gathering = gathering_start(run, vectors->columns.count);

    for (int row = 0; row < matrix->rows; row++) {
        gather_row(&gathering, vectors, row);
        matrix->starts[row + 1] = gathering.count;
    }
    add_up(matrix->starts, matrix->rows);
    gathering_end(run, &gathering);
}

static void fill_rows(struct run *run, struct matrix *matrix, const struct vectors *vectors)
{
    struct gathering gathering = gathering_start(run, vectors->columns.count);
    int64_t at = 0;

    for (int row = 0; row < matrix->rows; row++) {
        gather_row(&gathering, vectors, row);
        qsort(gathering.places, (size_t)gathering.count, sizeof(int), ascending);
        for (int i = 0; i < gathering.count; i++, at++) {
            matrix->columns[at] = gathering.places[i];
            matrix->values[at] = gathering.sums[gathering.places[i]];
        }
    }
    gathering_end(run, &gathering);
}

struct matrix matrix_make(struct run *run, const struct matrix_kind *kind, struct span rows,
                          struct span columns)
{
    struct vectors vectors = draw_vectors(run, kind, rows, columns);
    struct matrix matrix = {.rows = rows.count};

    matrix.starts = run_memory(run, (size_t)rows.count + 1, sizeof(int64_t));
    count_row_lengths(run, &matrix, &vectors);
    matrix.columns = run_ints(run, (size_t)matrix.starts[rows.count]);
    matrix.values = run_doubles(run, (size_t)matrix.starts[rows.count]);
    fill_rows(run, &matrix, &vectors);
    release_vectors(run, &vectors);
    return matrix;
}

uint64_t matrix_bytes(const struct matrix_kind *kind, int row_parts, int column_parts)
{
    const uint64_t order = (uint64_t)kind->order;
    const uint64_t entries = (uint64_t)kind->nonzeros + 1;
    const uint64_t entry_bytes = sizeof(int) + sizeof(double);
    const uint64_t block = order / (uint64_t)row_parts * entries * entries / (uint64_t)column_parts;
    const uint64_t vectors =
        order * entries / (uint64_t)row_parts + order * entries / (uint64_t)column_parts;

    return (block + vectors) * entry_bytes + 2 * order * sizeof(int64_t);
}

void matrix_multiply(const struct matrix *matrix, const double *restrict vector,
                     double *restrict result)
{
    const int *restrict columns = matrix->columns;
    const double *restrict values = matrix->values;

    for (int row = 0; row < matrix->rows; row++) {
        const int64_t end = matrix->starts[row + 1];
        int64_t i = matrix->starts[row];
        /* Four sums: an addition waits for the one before it. */
        double sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;

        for (; i + 4 <= end; i += 4) {
            __builtin_prefetch(values + i + PREFETCH_AHEAD);
            __builtin_prefetch(columns + i + PREFETCH_AHEAD);
            sum0 += values[i] * vector[columns[i]];
            sum1 += values[i + 1] * vector[columns[i + 1]];
            sum2 += values[i + 2] * vector[columns[i + 2]];
            sum3 += values[i + 3] * vector[columns[i + 3]];
        }
        for (; i < end; i++)
            sum0 += values[i] * vector[columns[i]];
        result[row] = (sum0 + sum1) + (sum2 + sum3);
    }
}
