#include "nas/lu/pencil.h"

#include <stdio.h>

/* Blocks exchange two layers of points. */
#define BLOCK_POINTS_MIN 3
#define FACE_TAG 1

/* As square as possible, with longer rows than columns: rows are computed on vectors. */
static void cut(int ranks, int parts[CUT_DIRECTIONS])
{
    parts[0] = 1;
    for (int x = 1; x * x <= ranks; x++)
        if (ranks % x == 0)
            parts[0] = x;
    parts[1] = ranks / parts[0];
}

static int largest(int points, int parts)
{
    return (points + parts - 1) / parts;
}

static size_t face_doubles(const int size[DIRECTIONS], int direction)
{
    return (size_t)COMPONENTS * HALO * (size_t)size[1 - direction] * (size_t)size[2];
}

int pencil_plan(const struct job *job, int points, struct plan *plan, struct failure *failure)
{
    int parts[CUT_DIRECTIONS];

    cut(job->ranks, parts);
    const int size[DIRECTIONS] = {largest(points, parts[0]), largest(points, parts[1]), points};

    if (points / parts[1] < BLOCK_POINTS_MIN)
        return failure_set(failure,
                           "lu cuts the grid of class %c, %d points along each direction, into "
                           "%d x %d parts for %d ranks: too thin, there must be %d points in each",
                           CLASS_LETTERS[job->class], points, parts[0], parts[1], job->ranks,
                           BLOCK_POINTS_MIN);
    snprintf(plan->size, sizeof plan->size, "%dx%dx%d", points, points, points);
    plan->rank_bytes = block_bytes(size) +
                       sizeof(double) * 4 * (face_doubles(size, 0) + face_doubles(size, 1)) +
                       sizeof(struct contribution) * (size_t)size[0] * (size_t)size[1];
    return 0;
}

void pencil_make(struct pencil *pencil, struct run *run, struct flow flow)
{
    int parts[CUT_DIRECTIONS];

    cut(run->ranks, parts);
    const int place[CUT_DIRECTIONS] = {run->rank % parts[0], run->rank / parts[0]};
    const int stride[CUT_DIRECTIONS] = {1, parts[0]};
    const struct span spans[DIRECTIONS] = {span_of(flow.points, place[0], parts[0]),
                                           span_of(flow.points, place[1], parts[1]),
                                           {0, flow.points}};

    *pencil = (struct pencil){.run = run, .flow = flow};
    block_make(&pencil->block, run, &flow, spans);
    for (int d = 0; d < CUT_DIRECTIONS; d++) {
        pencil->before[d] = place[d] == 0 ? MPI_PROC_NULL : run->rank - stride[d];
        pencil->after[d] = place[d] == parts[d] - 1 ? MPI_PROC_NULL : run->rank + stride[d];
        for (int end = 0; end < 2; end++)
            for (int way = 0; way < 2; way++)
                pencil->faces[d][end][way] = run_doubles(run, face_doubles(pencil->block.size, d));
    }

    const size_t rows = (size_t)pencil->block.size[1], row = (size_t)pencil->block.size[0];

    pencil->planes = run_memory(run, rows * row, sizeof *pencil->planes);
    pencil->rows = run_memory(run, row, sizeof *pencil->rows);
    pencil->columns = run_memory(run, rows, sizeof *pencil->columns);
}

/* The layers at one end of the block: its own points, or those of the halo. */
static void handle_face(struct pencil *pencil, int direction, int end, bool unpack)
{
    struct block *block = &pencil->block;
    const int size = block->size[direction];
    int low[DIRECTIONS] = {0}, high[DIRECTIONS];

    for (int d = 0; d < DIRECTIONS; d++)
        high[d] = block->size[d];
    if (end == 0)
        low[direction] = unpack ? -HALO : 0;
    else
        low[direction] = unpack ? size : size - HALO;
    high[direction] = low[direction] + HALO;
    if (unpack)
        block_unpack(block, block->u, low, high, pencil->faces[direction][end][1]);
    else
        block_pack(block, block->u, low, high, pencil->faces[direction][end][0]);
}

static void exchange(struct pencil *pencil)
{
    struct run *run = pencil->run;
    MPI_Request requests[4 * CUT_DIRECTIONS];
    int count = 0;

    for (int d = 0; d < CUT_DIRECTIONS; d++)
        for (int end = 0; end < 2; end++)
            IN_MPI(run,
                   MPI_Irecv(pencil->faces[d][end][1], (int)face_doubles(pencil->block.size, d),
                             MPI_DOUBLE, end == 0 ? pencil->before[d] : pencil->after[d], FACE_TAG,
                             run->comm, &requests[count++]));
    for (int d = 0; d < CUT_DIRECTIONS; d++)
        for (int end = 0; end < 2; end++) {
            int to = end == 0 ? pencil->before[d] : pencil->after[d];

            if (to != MPI_PROC_NULL)
                handle_face(pencil, d, end, false);
            IN_MPI(run,
                   MPI_Isend(pencil->faces[d][end][0], (int)face_doubles(pencil->block.size, d),
                             MPI_DOUBLE, to, FACE_TAG, run->comm, &requests[count++]));
        }
    IN_MPI(run, MPI_Waitall(count, requests, MPI_STATUSES_IGNORE));
    for (int d = 0; d < CUT_DIRECTIONS; d++)
        for (int end = 0; end < 2; end++)
            if ((end == 0 ? pencil->before[d] : pencil->after[d]) != MPI_PROC_NULL)
                handle_face(pencil, d, end, true);
}

void pencil_right_hand_side(struct pencil *pencil)
{
    exchange(pencil);
    if (run_work(pencil->run, block_right_hand_side_work(&pencil->block)))
        block_right_hand_side(&pencil->block, &pencil->flow, NULL);
}
