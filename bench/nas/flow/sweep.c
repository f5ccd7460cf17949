#include "nas/flow/sweep.h"

#include <string.h>

#define AHEAD_TAG 16
#define BACK_TAG 17

void lines_gather(const struct lines *lines, const double *field, int begin, int end, double *to,
                  ptrdiff_t stride)
{
    const ptrdiff_t step = lines->step;

    if (lines->adjacent) {
        const double *from = field + lines->at[0] + begin * step;

        for (int i = begin; i < end; i++, from += step, to += stride)
            memcpy(to, from, LANES * sizeof *to);
        return;
    }
    for (int lane = 0; lane < LANES; lane++) {
        const double *from = field + lines->at[lane] + begin * step;

        for (int i = 0; i < end - begin; i++)
            to[i * stride + lane] = from[i * step];
    }
}

void lines_scatter(const struct lines *lines, double *field, int begin, int end, const double *from,
                   ptrdiff_t stride)
{
    const ptrdiff_t step = lines->step;

    if (lines->adjacent) {
        double *to = field + lines->at[0] + begin * step;

        for (int i = begin; i < end; i++, to += step, from += stride)
            memcpy(to, from, LANES * sizeof *to);
        return;
    }
    for (int lane = 0; lane < lines->count; lane++) {
        double *to = field + lines->at[lane] + begin * step;

        for (int i = 0; i < end - begin; i++)
            to[i * step] = from[i * stride + lane];
    }
}

/* Lines of a cell along a direction lie across the two others: `fast` is the one with the smaller
 * step. */
struct across {
    const struct block *block;
    int fast;
    int slow;
    int fast_count;
    int lines;
};

static struct across across_of(const struct block *block, int direction)
{
    const int fast = direction == 0 ? 1 : 0, slow = direction == 2 ? 1 : 2;
    const int fast_count = block->end[fast] - block->begin[fast];

    return (struct across){block, fast, slow, fast_count,
                           fast_count * (block->end[slow] - block->begin[slow])};
}

/* The lines `first`, `first` + 1, ... of a cell. */
static void choose_lines(struct lines *lines, const struct across *across, int first)
{
    const struct block *block = across->block;

    lines->count = across->lines - first < LANES ? across->lines - first : LANES;
    for (int lane = 0; lane < LANES; lane++) {
        int line = first + (lane < lines->count ? lane : lines->count - 1);

        lines->at[lane] =
            (block->begin[across->fast] + line % across->fast_count) * block->step[across->fast] +
            (block->begin[across->slow] + line / across->fast_count) * block->step[across->slow];
    }
    lines->adjacent = lines->count == LANES && lines->at[LANES - 1] - lines->at[0] == LANES - 1;
}

/* A message has the numbers of each line side by side, without the lanes that repeat. */
static void load_border(const struct lines *lines, const double *message, int count, double *border)
{
    for (int i = 0; i < count; i++)
        for (int lane = 0; lane < LANES; lane++)
            border[i * LANES + lane] =
                message[i * lines->count + (lane < lines->count ? lane : lines->count - 1)];
}

static void store_border(const struct lines *lines, double *message, int count,
                         const double *border)
{
    for (int i = 0; i < count; i++)
        for (int lane = 0; lane < lines->count; lane++)
            message[i * lines->count + lane] = border[i * LANES + lane];
}

#define BORDER_MAX 32

enum way { ELIMINATE, SUBSTITUTE };

/* One way through a cell, batch by batch. Messages are NULL at the ends of the grid. */
static void pass_cell(const struct line_method *method, enum way way, struct lines *lines,
                      double *kept, const double *in, double *out)
{
    const struct across across = across_of(lines->block, lines->direction);
    const int count = way == ELIMINATE ? method->ahead : method->back;
    const ptrdiff_t batch = (ptrdiff_t)(lines->end - lines->begin) * method->kept * LANES;
    vector border[BORDER_MAX * LANE_VECTORS];

    for (int first = 0; first < across.lines; first += LANES, kept += batch) {
        choose_lines(lines, &across, first);
        if (in != NULL)
            load_border(lines, in + (ptrdiff_t)first * count, count, (double *)border);
        else
            memset(border, 0, sizeof border);
        (way == ELIMINATE ? method->eliminate : method->substitute)(lines, (vector *)kept, border);
        if (out != NULL)
            store_border(lines, out + (ptrdiff_t)first * count, count, (const double *)border);
    }
}

/* With a single cell, both ways of a batch while it is in the cache. */
static void solve_cell(const struct line_method *method, struct lines *lines, double *kept)
{
    const struct across across = across_of(lines->block, lines->direction);
    vector border[BORDER_MAX * LANE_VECTORS];

    for (int first = 0; first < across.lines; first += LANES) {
        choose_lines(lines, &across, first);
        memset(border, 0, sizeof border);
        method->eliminate(lines, (vector *)kept, border);
        memset(border, 0, sizeof border);
        method->substitute(lines, (vector *)kept, border);
    }
}

static struct lines lines_of(const struct partition *partition, int slab, int direction)
{
    const struct block *block = &partition->cells[partition->slabs[direction][slab]];

    return (struct lines){.block = block,
                          .flow = &partition->flow,
                          .direction = direction,
                          .begin = block->begin[direction],
                          .end = block->end[direction],
                          .step = block->step[direction],
                          .gathered = partition->gathered};
}

/* One way through all slabs of cells. */
struct pass {
    enum way way;
    int from;
    int to;
    int tag;
    int doubles; /* that each line takes across a border */
};

static int slab_at(const struct partition *partition, const struct pass *pass, int stage)
{
    return pass->way == ELIMINATE ? stage : partition->side - 1 - stage;
}

/* Waits for the stage before to hand over its border. */
static void receive(struct partition *partition, const struct pass *pass, int direction, int stage,
                    MPI_Request *request)
{
    const struct lines lines = lines_of(partition, slab_at(partition, pass, stage), direction);
    const int doubles = across_of(lines.block, direction).lines * pass->doubles;

    IN_MPI(partition->run, MPI_Irecv(partition->borders[stage % 2], doubles, MPI_DOUBLE, pass->from,
                                     pass->tag, partition->run->comm, request));
}

/* What arrives for the next stage does so while this one is computed. */
static void pass_slabs(struct partition *partition, const struct line_method *method,
                       const struct pass *pass, int direction)
{
    struct run *run = partition->run;
    const int last = partition->side - 1;
    MPI_Request in[2], out[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};

    for (int stage = 0; stage <= last; stage++) {
        const int slab = slab_at(partition, pass, stage);
        struct lines lines = lines_of(partition, slab, direction);
        double *from = partition->borders[stage % 2], *to = partition->borders[2 + stage % 2];

        if (stage < last)
            receive(partition, pass, direction, stage + 1, &in[(stage + 1) % 2]);
        if (stage > 0)
            IN_MPI(run, MPI_Wait(&in[stage % 2], MPI_STATUS_IGNORE));
        IN_MPI(run, MPI_Wait(&out[stage % 2], MPI_STATUS_IGNORE));
        pass_cell(method, pass->way, &lines,
                  partition->kept + (size_t)slab * partition->kept_doubles, stage > 0 ? from : NULL,
                  stage < last ? to : NULL);
        if (stage < last)
            IN_MPI(run, MPI_Isend(to, across_of(lines.block, direction).lines * pass->doubles,
                                  MPI_DOUBLE, pass->to, pass->tag, run->comm, &out[stage % 2]));
    }
    IN_MPI(run, MPI_Waitall(2, out, MPI_STATUSES_IGNORE));
}

void sweep(struct partition *partition, const struct line_method *method, int direction)
{
    const int before = partition->before[direction], after = partition->after[direction];
    const struct pass ahead = {ELIMINATE, before, after, AHEAD_TAG, method->ahead};
    const struct pass back = {SUBSTITUTE, after, before, BACK_TAG, method->back};

    if (partition->side == 1) {
        struct lines lines = lines_of(partition, 0, direction);

        solve_cell(method, &lines, partition->kept);
        return;
    }
    pass_slabs(partition, method, &ahead, direction);
    pass_slabs(partition, method, &back, direction);
}
