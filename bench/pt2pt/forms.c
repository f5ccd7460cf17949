#include "pt2pt/forms.h"

#include "pt2pt/content.h"

#include <stdlib.h>

void forms_ping_pong(struct run *run)
{
    if (run->sends) {
        MPI_Send(run->send, run->count, run->datatype->mpi, run->peer, FORMS_TAG, run->comm);
        MPI_Recv(run->recv, run->count, run->datatype->mpi, run->peer, FORMS_TAG, run->comm,
                 MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(run->recv, run->count, run->datatype->mpi, run->peer, FORMS_TAG, run->comm,
                 MPI_STATUS_IGNORE);
        MPI_Send(run->send, run->count, run->datatype->mpi, run->peer, FORMS_TAG, run->comm);
    }
}

/* The requests of a window in each direction. */
struct window {
    MPI_Request *sends;
    MPI_Request *receives;
};

void forms_window_open(struct run *run)
{
    struct window *window = malloc(sizeof *window);
    MPI_Request *requests = malloc(2 * (size_t)run->window * sizeof *requests);

    if (window == NULL || requests == NULL)
        MPI_Abort(run->comm, EXIT_FAILURE);
    *window = (struct window){requests, requests + run->window};
    run->state = window;
}

void forms_window_close(struct run *run)
{
    struct window *window = run->state;

    free(window->sends);
    free(window);
}

static void post_receives(struct run *run, struct window *window)
{
    for (int i = 0; i < run->window; i++)
        MPI_Irecv(content_slot(run, run->recv, i), run->count, run->datatype->mpi, run->peer,
                  FORMS_TAG, run->comm, &window->receives[i]);
}

static void post_sends(struct run *run, struct window *window)
{
    for (int i = 0; i < run->window; i++)
        MPI_Isend(content_slot(run, run->send, i), run->count, run->datatype->mpi, run->peer,
                  FORMS_TAG, run->comm, &window->sends[i]);
}

void forms_acknowledge(struct run *run)
{
    if (run->sends)
        MPI_Recv(NULL, 0, MPI_CHAR, run->peer, FORMS_TAG_ACK, run->comm, MPI_STATUS_IGNORE);
    else
        MPI_Send(NULL, 0, MPI_CHAR, run->peer, FORMS_TAG_ACK, run->comm);
}

void forms_window_one_way(struct run *run)
{
    struct window *window = run->state;

    if (run->sends) {
        post_sends(run, window);
        MPI_Waitall(run->window, window->sends, MPI_STATUSES_IGNORE);
    } else {
        post_receives(run, window);
        MPI_Waitall(run->window, window->receives, MPI_STATUSES_IGNORE);
    }
    forms_acknowledge(run);
}

void forms_window_both_ways(struct run *run)
{
    struct window *window = run->state;

    post_receives(run, window);
    post_sends(run, window);
    MPI_Waitall(run->window, window->sends, MPI_STATUSES_IGNORE);
    MPI_Waitall(run->window, window->receives, MPI_STATUSES_IGNORE);
    forms_acknowledge(run);
}
