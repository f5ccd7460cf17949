#include "nas/flow/sweep.h"

#include <string.h>

/* Two messages of a way are under way at a time, and SimGrid, whose MPI sends short and long ones
 * by different routes, does not keep them in order. So the tag tells the stage that sends, even or
 * odd. */
#define AHEAD_TAG 16
#define BACK_TAG 18

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

/* Elimination goes through the slabs up to the last one, where the lines turn, and substitution
 * comes back. */
enum way { ELIMINATE, TURN, SUBSTITUTE };

/* One stage of a sweep: a cell, and what crosses its borders. */
struct stage {
    enum way way;
    struct lines lines;
    struct across across;
    int doubles_in; /* of each line; 0 if it starts here */
    int doubles_out;
    int slab;
};

static struct stage stage_at(const struct partition *partition, const struct line_method *method,
                             int direction, int number)
{
    const int last = partition->side - 1;
    const enum way way = number < last ? ELIMINATE : number == last ? TURN : SUBSTITUTE;
    const int slab = number <= last ? number : 2 * last - number;
    const struct block *block = &partition->cells[partition->slabs[direction][slab]];

    return (struct stage){
        .way = way,
        .lines = {.block = block,
                  .flow = &partition->flow,
                  .direction = direction,
                  .begin = block->begin[direction],
                  .end = block->end[direction],
                  .step = block->step[direction],
                  .gathered = partition->gathered},
        .across = across_of(block, direction),
        .doubles_in = number == 0      ? 0
                      : number <= last ? method->ahead
                                       : method->back,
        .doubles_out = number == 2 * last ? 0
                       : number < last    ? method->ahead
                                          : method->back,
        .slab = slab,
    };
}

static int message_in(const struct stage *stage)
{
    return stage->across.lines * stage->doubles_in;
}

static int message_out(const struct stage *stage)
{
    return stage->across.lines * stage->doubles_out;
}

static double stage_work(const struct line_method *method, const struct stage *stage)
{
    const double points = (double)stage->across.lines * (stage->lines.end - stage->lines.begin);

    return points * ((stage->way == SUBSTITUTE ? 0 : method->eliminate_work) +
                     (stage->way == ELIMINATE ? 0 : method->substitute_work));
}

/* Takes all lines of a cell through a stage, batch by batch. Where they turn, a batch goes both
 * ways while it is in the cache. */
static void pass_cell(const struct line_method *method, struct stage *stage, double *kept,
                      const double *in, double *out)
{
    struct lines *lines = &stage->lines;
    const ptrdiff_t batch = (ptrdiff_t)(lines->end - lines->begin) * method->kept * LANES;
    vector border[BORDER_MAX * LANE_VECTORS];

    for (int first = 0; first < stage->across.lines; first += LANES) {
        choose_lines(lines, &stage->across, first);
        memset(border, 0, sizeof border);
        if (stage->doubles_in > 0)
            load_border(lines, in + (ptrdiff_t)first * stage->doubles_in, stage->doubles_in,
                        (double *)border);
        if (stage->way != SUBSTITUTE)
            method->eliminate(lines, (vector *)kept, border);
        if (stage->way == TURN)
            memset(border, 0, sizeof border);
        if (stage->way != ELIMINATE)
            method->substitute(lines, (vector *)kept, border);
        if (stage->doubles_out > 0)
            store_border(lines, out + (ptrdiff_t)first * stage->doubles_out, stage->doubles_out,
                         (const double *)border);
        if (stage->way != TURN)
            kept += batch;
    }
}

/* What arrives for the next stage does so while this one is computed. */
void sweep(struct partition *partition, const struct line_method *method, int direction)
{
    const int stages = 2 * partition->side - 1, last = partition->side - 1;
    const int before = partition->before[direction], after = partition->after[direction];
    struct run *run = partition->run;
    MPI_Request in[2], out[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};

    for (int number = 0; number < stages; number++) {
        struct stage stage = stage_at(partition, method, direction, number);
        double *from = partition->borders[number % 2], *to = partition->borders[2 + number % 2];

        if (number + 1 < stages) {
            const struct stage next = stage_at(partition, method, direction, number + 1);
            const bool ahead = number + 1 <= last;

            IN_MPI(run,
                   MPI_Irecv(partition->borders[(number + 1) % 2], message_in(&next), MPI_DOUBLE,
                             ahead ? before : after, (ahead ? AHEAD_TAG : BACK_TAG) + number % 2,
                             run->comm, &in[(number + 1) % 2]));
        }
        if (number > 0)
            IN_MPI(run, MPI_Wait(&in[number % 2], MPI_STATUS_IGNORE));
        IN_MPI(run, MPI_Wait(&out[number % 2], MPI_STATUS_IGNORE));
        if (run_work(run, stage_work(method, &stage)))
            pass_cell(method, &stage,
                      partition->kept + (size_t)stage.slab * partition->kept_doubles, from, to);
        if (number + 1 < stages) {
            const bool ahead = number < last;

            IN_MPI(run, MPI_Isend(to, message_out(&stage), MPI_DOUBLE, ahead ? after : before,
                                  (ahead ? AHEAD_TAG : BACK_TAG) + number % 2, run->comm,
                                  &out[number % 2]));
        }
    }
    IN_MPI(run, MPI_Waitall(2, out, MPI_STATUSES_IGNORE));
}
