#include "nas/mg/box.h"

#include <string.h>

#define MESSAGE_TAG 1

enum direction { BELOW, ABOVE };

void lattice_share(int ranks, int along[AXES])
{
    int power = 0;

    while (1 << power < ranks)
        power++;
    along[0] = 1 << power / 3;
    along[1] = 1 << (power - power / 3) / 2;
    along[2] = ranks / (along[0] * along[1]);
}

static int rank_at(const struct lattice *lattice, const int place[AXES])
{
    return (place[2] * lattice->ranks[1] + place[1]) * lattice->ranks[0] + place[0];
}

struct lattice lattice_make(struct run *run)
{
    struct lattice lattice = {.run = run};

    lattice_share(run->ranks, lattice.ranks);
    lattice.place[0] = run->rank % lattice.ranks[0];
    lattice.place[1] = run->rank / lattice.ranks[0] % lattice.ranks[1];
    lattice.place[2] = run->rank / (lattice.ranks[0] * lattice.ranks[1]);
    for (int axis = 0; axis < AXES; axis++) {
        const int ranks = lattice.ranks[axis];
        int place[AXES];

        memcpy(place, lattice.place, sizeof place);
        place[axis] = (lattice.place[axis] + ranks - 1) % ranks;
        lattice.neighbour[axis][BELOW] = rank_at(&lattice, place);
        place[axis] = (lattice.place[axis] + 1) % ranks;
        lattice.neighbour[axis][ABOVE] = rank_at(&lattice, place);
    }
    return lattice;
}

struct box box_make(int side, const int ranks[AXES])
{
    struct box box;

    for (int axis = 0; axis < AXES; axis++)
        box.points[axis] = side / ranks[axis];
    box.width = box.points[0] + 2;
    box.height = box.points[1] + 2;
    box.size = box.width * box.height * (box.points[2] + 2);
    return box;
}

/* The largest face, four times: to and from both sides. */
static size_t face_count(const struct box *box)
{
    const int depth = box->points[2] + 2;
    int most = box->width * box->height;

    most = box->width * depth > most ? box->width * depth : most;
    most = box->height * depth > most ? box->height * depth : most;
    return (size_t)most;
}

size_t box_buffer_count(const struct box *box)
{
    return 4 * face_count(box);
}

/* A plane of points across an axis, with the shell of the axes before it and without that of the
 * axes after it. */
struct face {
    int first; /* the place in the box of its first value */
    int counts[2];
    int steps[2];
};

static struct face face_at(const struct box *box, int axis, int place)
{
    const int plane = box->width * box->height;
    const int *points = box->points;

    switch (axis) {
    case 0:
        return (struct face){
            plane + box->width + place, {points[1], points[2]}, {box->width, plane}};
    case 1:
        return (struct face){plane + place * box->width, {box->width, points[2]}, {1, plane}};
    default:
        return (struct face){place * plane, {box->width, box->height}, {1, box->width}};
    }
}

static int face_pack(const struct face *face, const double *restrict values,
                     double *restrict packed)
{
    for (int j = 0; j < face->counts[1]; j++) {
        const double *row = values + face->first + j * face->steps[1];

        for (int i = 0; i < face->counts[0]; i++)
            *packed++ = row[i * face->steps[0]];
    }
    return face->counts[0] * face->counts[1];
}

static void face_unpack(const struct face *face, const double *restrict packed,
                        double *restrict values)
{
    for (int j = 0; j < face->counts[1]; j++) {
        double *row = values + face->first + j * face->steps[1];

        for (int i = 0; i < face->counts[0]; i++)
            row[i * face->steps[0]] = *packed++;
    }
}

static void face_copy(const struct face *to, const struct face *from, double *values)
{
    for (int j = 0; j < to->counts[1]; j++) {
        double *restrict target = values + to->first + j * to->steps[1];
        const double *restrict source = values + from->first + j * from->steps[1];

        for (int i = 0; i < to->counts[0]; i++)
            target[i * to->steps[0]] = source[i * from->steps[0]];
    }
}

static void wrap_axis(const struct box *box, double *values, int axis)
{
    const int last = box->points[axis];
    const struct face shells[2] = {face_at(box, axis, 0), face_at(box, axis, last + 1)};
    const struct face sources[2] = {face_at(box, axis, last), face_at(box, axis, 1)};

    for (int side = BELOW; side <= ABOVE; side++)
        face_copy(&shells[side], &sources[side], values);
}

static void exchange_axis(const struct box *box, const struct lattice *lattice, double *values,
                          double *buffer, int axis)
{
    struct run *run = lattice->run;
    const int *neighbour = lattice->neighbour[axis];
    const int last = box->points[axis];
    const struct face shells[2] = {face_at(box, axis, 0), face_at(box, axis, last + 1)};
    const struct face sources[2] = {face_at(box, axis, 1), face_at(box, axis, last)};
    const int count = shells[0].counts[0] * shells[0].counts[1];
    double *const incoming[2] = {buffer, buffer + count};
    double *outgoing = buffer + 2 * (ptrdiff_t)count;
    MPI_Request requests[2];

    /* The tag says which way a message goes: with two ranks, both neighbours are the same. */
    for (int side = BELOW; side <= ABOVE; side++)
        IN_MPI(run, MPI_Irecv(incoming[side], count, MPI_DOUBLE, neighbour[side],
                              MESSAGE_TAG + !side, run->comm, &requests[side]));
    for (int side = BELOW; side <= ABOVE; side++) {
        face_pack(&sources[side], values, outgoing);
        IN_MPI(run, MPI_Send(outgoing, count, MPI_DOUBLE, neighbour[side], MESSAGE_TAG + side,
                             run->comm));
    }
    IN_MPI(run, MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    for (int side = BELOW; side <= ABOVE; side++)
        face_unpack(&shells[side], incoming[side], values);
}

void box_exchange(const struct box *box, const struct lattice *lattice, double *values,
                  double *buffer)
{
    for (int axis = 0; axis < AXES; axis++) {
        if (lattice->ranks[axis] == 1)
            wrap_axis(box, values, axis);
        else
            exchange_axis(box, lattice, values, buffer, axis);
    }
}

void box_wrap(const struct box *box, double *values)
{
    for (int axis = 0; axis < AXES; axis++)
        wrap_axis(box, values, axis);
}
