#include "collective/collective.h"

#include <stdlib.h>

static void *array(const struct run *run, size_t element_bytes)
{
    void *memory = calloc((size_t)run->ranks, element_bytes);

    if (memory == NULL)
        MPI_Abort(run->comm, EXIT_FAILURE);
    return memory;
}

void collective_open(struct run *run)
{
    struct collective *state = calloc(1, sizeof *state);

    if (state == NULL)
        MPI_Abort(run->comm, EXIT_FAILURE);
    *state = (struct collective){
        .counts = array(run, sizeof(int)),
        .displacements = array(run, sizeof(int)),
        .displacements_bytes = array(run, sizeof(int)),
        .types = array(run, sizeof(MPI_Datatype)),
        .parts = array(run, sizeof(int)),
        .request = MPI_REQUEST_NULL,
    };
    for (int i = 0; i < run->ranks; i++) {
        state->counts[i] = run->count;
        state->displacements[i] = i * run->count;
        state->displacements_bytes[i] = i * run->count * (int)run->datatype->bytes;
        state->types[i] = run->datatype->mpi;
        state->parts[i] = run->count / run->ranks + (i < run->count % run->ranks);
    }
    run->state = state;
}

void collective_close(struct run *run)
{
    struct collective *state = run->state;

    free(state->counts);
    free(state->displacements);
    free(state->displacements_bytes);
    free(state->types);
    free(state->parts);
    free(state);
}

void collective_open_persistent(struct run *run)
{
    collective_open(run);
    struct collective *state = run->state;

    run->benchmark->start(run, &state->request);
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
