#include "nas/flow/partition.h"

#include "nas/flow/sweep.h"

#include <math.h>
#include <stdio.h>

/* A cell exchanges two layers of points with each neighbour, and the sweeps need one more. */
#define CELL_POINTS_MIN 3
#define FACE_TAG 1

static int root_of(int ranks)
{
    return (int)lround(sqrt(ranks));
}

static int largest_cell(int points, int side)
{
    return (points + side - 1) / side;
}

/* Lines of a cell, in whole batches. */
static size_t batches_of(int points)
{
    return ((size_t)points * (size_t)points + LANES - 1) / LANES;
}

/* What is kept of a batch of lines in a cell. */
static size_t batch_doubles(int points, const struct line_method *method)
{
    return (size_t)points * (size_t)method->kept * LANES;
}

/* Of all lines of a cell, while other ranks work on them. */
static size_t cell_doubles(int points, const struct line_method *method)
{
    return batches_of(points) * batch_doubles(points, method);
}

/* Of those in all slabs; where they turn, one batch at a time. */
static size_t kept_doubles(int side, int points, const struct line_method *method)
{
    return (size_t)(side - 1) * cell_doubles(points, method) + batch_doubles(points, method);
}

static size_t gathered_doubles(int points, const struct line_method *method)
{
    return ((size_t)points + 2) * (size_t)method->gathered * LANES;
}

static size_t border_doubles(int points, const struct line_method *method)
{
    return (size_t)points * (size_t)points * (size_t)method->ahead;
}

int partition_plan(const struct job *job, int points, const struct line_method *method,
                   struct plan *plan, struct failure *failure)
{
    const int side = root_of(job->ranks), cell = largest_cell(points, side);
    uint64_t doubles;

    if (points / side < CELL_POINTS_MIN)
        return failure_set(failure,
                           "class %c has %d points along each direction: too few for %d ranks, "
                           "which cut them into %d parts; at most %d ranks can share it",
                           CLASS_LETTERS[job->class], points, job->ranks, side,
                           (points / CELL_POINTS_MIN) * (points / CELL_POINTS_MIN));
    doubles = kept_doubles(side, cell, method) + gathered_doubles(cell, method);
    if (side > 1)
        doubles += 4 * border_doubles(cell, method) + 4 * (uint64_t)DIRECTIONS * HALO * COMPONENTS *
                                                          (uint64_t)cell * (uint64_t)cell *
                                                          (uint64_t)side;
    snprintf(plan->size, sizeof plan->size, "%dx%dx%d", points, points, points);
    plan->rank_bytes = (uint64_t)side * block_bytes((int[]){cell, cell, cell}) + 8 * doubles;
    return 0;
}

static int wrap(int number, int side)
{
    return (number % side + side) % side;
}

/* Rank (a, b) of the q * q has the cells (a + c, b - c, c) for c = 0, 1, ... */
static int rank_of(int a, int b, int side)
{
    return wrap(a, side) + wrap(b, side) * side;
}

static void make_cells(struct partition *partition, struct run *run)
{
    const int side = partition->side, a = run->rank % side, b = run->rank / side;

    partition->cells = run_memory(run, (size_t)side, sizeof *partition->cells);
    for (int d = 0; d < DIRECTIONS; d++)
        partition->slabs[d] = run_ints(run, (size_t)side);
    for (int c = 0; c < side; c++) {
        const int place[DIRECTIONS] = {wrap(a + c, side), wrap(b - c, side), c};
        struct span spans[DIRECTIONS];

        for (int d = 0; d < DIRECTIONS; d++) {
            partition->slabs[d][place[d]] = c;
            spans[d] = span_of(partition->flow.points, place[d], side);
        }
        block_make(&partition->cells[c], run, &partition->flow, spans);
    }
    /* One step along z in the same column of cells is (a - 1, b + 1). */
    partition->after[0] = rank_of(a + 1, b, side);
    partition->before[0] = rank_of(a - 1, b, side);
    partition->after[1] = rank_of(a, b + 1, side);
    partition->before[1] = rank_of(a, b - 1, side);
    partition->after[2] = rank_of(a - 1, b + 1, side);
    partition->before[2] = rank_of(a + 1, b - 1, side);
}

/* The layers of a cell at its low or high end along a direction: its own points, or those of the
 * halo beyond. */
static void layers(const struct block *cell, int direction, bool high_end, bool beyond,
                   int low[DIRECTIONS], int high[DIRECTIONS])
{
    const int size = cell->size[direction];

    for (int d = 0; d < DIRECTIONS; d++) {
        low[d] = 0;
        high[d] = cell->size[d];
    }
    if (high_end)
        low[direction] = beyond ? size : size - HALO;
    else
        low[direction] = beyond ? -HALO : 0;
    high[direction] = low[direction] + HALO;
}

static int count_face(const struct partition *partition, int direction)
{
    int doubles = 0;

    for (int c = 0; c < partition->side; c++) {
        const int *size = partition->cells[c].size;

        doubles += COMPONENTS * HALO * size[0] * size[1] * size[2] / size[direction];
    }
    return doubles;
}

void partition_make(struct partition *partition, struct run *run, struct flow flow,
                    const struct line_method *method)
{
    const int side = root_of(run->ranks), cell = largest_cell(flow.points, side);

    *partition = (struct partition){.run = run, .flow = flow, .side = side};
    make_cells(partition, run);
    partition->kept_doubles = cell_doubles(cell, method);
    partition->kept = run_doubles(run, kept_doubles(side, cell, method));
    partition->gathered = run_doubles(run, gathered_doubles(cell, method));
    if (side == 1)
        return;
    for (int i = 0; i < 4; i++)
        partition->borders[i] = run_doubles(run, border_doubles(cell, method));
    for (int face = 0; face < 2 * DIRECTIONS; face++) {
        partition->face_doubles[face] = count_face(partition, face / 2);
        for (int way = 0; way < 2; way++)
            partition->faces[face][way] = run_doubles(run, (size_t)partition->face_doubles[face]);
    }
}

void partition_initialize(struct partition *partition)
{
    for (int c = 0; c < partition->side; c++)
        block_initialize(&partition->cells[c], &partition->flow);
}

/* Packs or unpacks one message: the ends of all cells that have a neighbour there. Returns how
 * many doubles that is. */
static int handle_face(struct partition *partition, int face, bool unpack)
{
    const int direction = face / 2, side = partition->side;
    const bool high_end = face % 2 == 1;
    double *buffer = partition->faces[face][unpack];
    ptrdiff_t done = 0;
    int low[DIRECTIONS], high[DIRECTIONS];

    for (int slab = high_end ? 0 : 1; slab < (high_end ? side - 1 : side); slab++) {
        const struct block *cell = &partition->cells[partition->slabs[direction][slab]];

        layers(cell, direction, high_end, unpack, low, high);
        done += unpack ? block_unpack(cell, cell->u, low, high, buffer + done)
                       : block_pack(cell, cell->u, low, high, buffer + done);
    }
    return (int)done;
}

void partition_exchange(struct partition *partition)
{
    struct run *run = partition->run;
    MPI_Request requests[4 * DIRECTIONS];
    int count = 0;

    if (partition->side == 1)
        return;
    /* What goes to the rank after is what it gets from before: the tag is the direction and way
     * that the message goes. */
    for (int face = 0; face < 2 * DIRECTIONS; face++) {
        int from = face % 2 == 1 ? partition->after[face / 2] : partition->before[face / 2];

        IN_MPI(run, MPI_Irecv(partition->faces[face][1], partition->face_doubles[face], MPI_DOUBLE,
                              from, FACE_TAG + (face ^ 1), run->comm, &requests[count++]));
    }
    for (int face = 0; face < 2 * DIRECTIONS; face++) {
        int to = face % 2 == 1 ? partition->after[face / 2] : partition->before[face / 2];
        int doubles = handle_face(partition, face, false);

        IN_MPI(run, MPI_Isend(partition->faces[face][0], doubles, MPI_DOUBLE, to, FACE_TAG + face,
                              run->comm, &requests[count++]));
    }
    IN_MPI(run, MPI_Waitall(count, requests, MPI_STATUSES_IGNORE));
    for (int face = 0; face < 2 * DIRECTIONS; face++)
        handle_face(partition, face, true);
}

void partition_right_hand_side(struct partition *partition, block_finish *finish)
{
    partition_exchange(partition);
    for (int c = 0; c < partition->side; c++)
        if (run_work(partition->run, block_right_hand_side_work(&partition->cells[c])))
            block_right_hand_side(&partition->cells[c], &partition->flow, finish);
}

void partition_check(struct partition *partition, const struct norms *published)
{
    struct norms sums = {{0}, {0}};

    partition_right_hand_side(partition, NULL);
    for (int c = 0; c < partition->side; c++)
        block_add_squares(&partition->cells[c], &partition->flow, &sums);
    flow_check(partition->run, &partition->flow, &sums, published);
}
