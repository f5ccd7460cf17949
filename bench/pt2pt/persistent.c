/* The persistent forms: requests made once, started in every iteration. */

#include "pt2pt/forms.h"

#include "pt2pt/content.h"

#include <stdlib.h>

/* Requests of both directions, as many as the form has. */
struct persistent {
    int count;
    MPI_Request *sends;
    MPI_Request *receives;
};

static void open_requests(struct run *run, int count)
{
    struct persistent *state = malloc(sizeof *state);
    MPI_Request *requests = malloc(2 * (size_t)count * sizeof *requests);

    if (state == NULL || requests == NULL)
        MPI_Abort(run->comm, EXIT_FAILURE);
    *state = (struct persistent){count, requests, requests + count};
    for (int i = 0; i < count; i++) {
        MPI_Send_init(content_slot(run, run->send, i), run->count, run->datatype->mpi, run->peer,
                      FORMS_TAG, run->comm, &state->sends[i]);
        MPI_Recv_init(content_slot(run, run->recv, i), run->count, run->datatype->mpi, run->peer,
                      FORMS_TAG, run->comm, &state->receives[i]);
    }
    run->state = state;
}

void forms_persistent_open(struct run *run)
{
    open_requests(run, 1);
}

void forms_persistent_open_window(struct run *run)
{
    open_requests(run, run->window);
}

void forms_persistent_close(struct run *run)
{
    struct persistent *state = run->state;

    for (int i = 0; i < state->count; i++) {
        MPI_Request_free(&state->sends[i]);
        MPI_Request_free(&state->receives[i]);
    }
    free(state->sends);
    free(state);
}

static void start_and_wait(int count, MPI_Request *requests)
{
    MPI_Startall(count, requests);
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
}

void forms_persistent_ping_pong(struct run *run)
{
    struct persistent *state = run->state;

    start_and_wait(1, run->sends ? state->sends : state->receives);
    start_and_wait(1, run->sends ? state->receives : state->sends);
}

void forms_persistent_one_way(struct run *run)
{
    struct persistent *state = run->state;

    start_and_wait(state->count, run->sends ? state->sends : state->receives);
    forms_acknowledge(run);
}

void forms_persistent_both_ways(struct run *run)
{
    struct persistent *state = run->state;

    MPI_Startall(state->count, state->receives);
    start_and_wait(state->count, state->sends);
    MPI_Waitall(state->count, state->receives, MPI_STATUSES_IGNORE);
    forms_acknowledge(run);
}
