#include "collective/collective.h"

#include <stdlib.h>

static void *array(const struct run *run, int count, size_t element_bytes)
{
    void *memory = calloc((size_t)count, element_bytes);

    if (memory == NULL)
        MPI_Abort(run->comm, EXIT_FAILURE);
    return memory;
}

/* For calls with `count` blocks, in `comm` unless that is MPI_COMM_NULL. */
static void open_blocks(struct run *run, int count, MPI_Comm comm)
{
    struct collective *state = array(run, 1, sizeof *state);

    *state = (struct collective){
        .counts = array(run, count, sizeof(int)),
        .displacements = array(run, count, sizeof(int)),
        .displacements_bytes = array(run, count, sizeof(int)),
        .addresses = array(run, count, sizeof(MPI_Aint)),
        .types = array(run, count, sizeof(MPI_Datatype)),
        .parts = array(run, count, sizeof(int)),
        .comm = comm,
        .request = MPI_REQUEST_NULL,
    };
    for (int i = 0; i < count; i++) {
        state->counts[i] = run->count;
        state->displacements[i] = i * run->count;
        state->displacements_bytes[i] = i * run->count * (int)run->datatype->bytes;
        state->addresses[i] = state->displacements_bytes[i];
        state->types[i] = run->datatype->mpi;
        state->parts[i] = run->count / count + (i < run->count % count);
    }
    run->state = state;
}

void collective_open(struct run *run)
{
    open_blocks(run, run->ranks, MPI_COMM_NULL);
}

int neighbour_count(const struct run *run)
{
    return 2 * run->options->grid_dimensions * run->options->grid_radius;
}

int neighbour_rank(const struct run *run, int index, int direction)
{
    int radius = run->options->grid_radius;
    int dimensions = run->options->grid_dimensions;
    int dimension = index / (2 * radius);
    int steps = (index / 2 % radius + 1) * (index % 2 == 0 ? direction : -direction);
    int sizes[OPTIONS_DIMENSIONS_MAX] = {0};
    int stride = 1;

    MPI_Dims_create(run->ranks, dimensions, sizes);
    for (int i = dimension + 1; i < dimensions; i++)
        stride *= sizes[i];
    int size = sizes[dimension];
    int here = run->rank / stride % size;
    int there = ((here + steps) % size + size) % size;

    return run->rank + (there - here) * stride;
}

void neighbour_open(struct run *run)
{
    int count = neighbour_count(run);
    int *sources = array(run, count, sizeof *sources);
    int *destinations = array(run, count, sizeof *destinations);
    int *weights = array(run, count, sizeof *weights);
    MPI_Comm graph;

    for (int i = 0; i < count; i++) {
        destinations[i] = neighbour_rank(run, i, 1);
        sources[i] = neighbour_rank(run, i, -1);
        weights[i] = 1;
    }
    MPI_Dist_graph_create_adjacent(run->comm, count, sources, weights, count, destinations, weights,
                                   MPI_INFO_NULL, 0, &graph);
    free(weights);
    free(sources);
    free(destinations);
    open_blocks(run, count, graph);
}

static void make_request(struct run *run)
{
    struct collective *state = run->state;

    run->benchmark->start(run, &state->request);
}

void collective_open_persistent(struct run *run)
{
    collective_open(run);
    make_request(run);
}

void neighbour_open_persistent(struct run *run)
{
    neighbour_open(run);
    make_request(run);
}

void collective_close(struct run *run)
{
    struct collective *state = run->state;

    if (state->comm != MPI_COMM_NULL)
        MPI_Comm_free(&state->comm);
    free(state->addresses);
    free(state->counts);
    free(state->displacements);
    free(state->displacements_bytes);
    free(state->types);
    free(state->parts);
    free(state);
}

void collective_close_persistent(struct run *run)
{
    struct collective *state = run->state;

    MPI_Request_free(&state->request);
    collective_close(run);
}

void collective_step_persistent(struct run *run)
{
    struct collective *state = run->state;

    MPI_Start(&state->request);
    MPI_Wait(&state->request, MPI_STATUS_IGNORE);
}
