#include "pt2pt/pt2pt.h"

#include "mpi/methods.h"
#include "pt2pt/content.h"

#include <stdlib.h>

#define SIZE_MAX_BYTES (4u << 20)
#define TAG 1
#define TAG_ACK 2

static void ping_pong(struct run *run)
{
    if (run->sends) {
        MPI_Send(run->send, run->count, run->datatype->mpi, run->peer, TAG, run->comm);
        MPI_Recv(run->recv, run->count, run->datatype->mpi, run->peer, TAG, run->comm,
                 MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(run->recv, run->count, run->datatype->mpi, run->peer, TAG, run->comm,
                 MPI_STATUS_IGNORE);
        MPI_Send(run->send, run->count, run->datatype->mpi, run->peer, TAG, run->comm);
    }
}

/* The requests of a window in each direction. */
struct window {
    MPI_Request *sends;
    MPI_Request *receives;
};

static void window_open(struct run *run)
{
    struct window *window = malloc(sizeof *window);
    MPI_Request *requests = malloc(2 * (size_t)run->window * sizeof *requests);

    if (window == NULL || requests == NULL)
        MPI_Abort(run->comm, EXIT_FAILURE);
    *window = (struct window){requests, requests + run->window};
    run->state = window;
}

static void window_close(struct run *run)
{
    struct window *window = run->state;

    free(window->sends);
    free(window);
}

static void post_receives(struct run *run, struct window *window)
{
    for (int i = 0; i < run->window; i++)
        MPI_Irecv(content_slot(run, run->recv, i), run->count, run->datatype->mpi, run->peer, TAG,
                  run->comm, &window->receives[i]);
}

static void post_sends(struct run *run, struct window *window)
{
    for (int i = 0; i < run->window; i++)
        MPI_Isend(content_slot(run, run->send, i), run->count, run->datatype->mpi, run->peer, TAG,
                  run->comm, &window->sends[i]);
}

/* The receiver says that it has everything. */
static void acknowledge(struct run *run)
{
    if (run->sends)
        MPI_Recv(NULL, 0, MPI_CHAR, run->peer, TAG_ACK, run->comm, MPI_STATUS_IGNORE);
    else
        MPI_Send(NULL, 0, MPI_CHAR, run->peer, TAG_ACK, run->comm);
}

static void window_one_way(struct run *run)
{
    struct window *window = run->state;

    if (run->sends) {
        post_sends(run, window);
        MPI_Waitall(run->window, window->sends, MPI_STATUSES_IGNORE);
    } else {
        post_receives(run, window);
        MPI_Waitall(run->window, window->receives, MPI_STATUSES_IGNORE);
    }
    acknowledge(run);
}

static void window_both_ways(struct run *run)
{
    struct window *window = run->state;

    post_receives(run, window);
    post_sends(run, window);
    MPI_Waitall(run->window, window->sends, MPI_STATUSES_IGNORE);
    MPI_Waitall(run->window, window->receives, MPI_STATUSES_IGNORE);
    acknowledge(run);
}

#define LATENCY .method = &method_ping_pong, .content = &content_exchange
#define SIZES .size_min_bytes = 1, .size_max_bytes = SIZE_MAX_BYTES
#define WINDOW .open = window_open, .close = window_close

const struct benchmark pt2pt_benchmarks[] = {
    {"latency", "Latency", SHAPE_PAIR, LATENCY, SIZES, .step = ping_pong},
    {"bw", "Bandwidth", SHAPE_PAIR, &method_stream, &content_window, SIZES, WINDOW,
     .step = window_one_way, .parameters = "w"},
    {"bibw", "Bi-Directional Bandwidth", SHAPE_PAIR, &method_stream_both_ways,
     &content_window_both_ways, SIZES, WINDOW, .step = window_both_ways, .parameters = "w"},
    {"multi_lat", "Multi-pair Latency", SHAPE_PAIRS, LATENCY, SIZES, .step = ping_pong,
     .parameters = "p"},
    {"mbw_mr", "Multiple Bandwidth / Message Rate", SHAPE_PAIRS, &method_stream_pairs,
     &content_window, SIZES, WINDOW, .step = window_one_way, .parameters = "wp"},
    {.name = NULL},
};
