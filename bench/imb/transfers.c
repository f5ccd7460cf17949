#include "imb/transfers.h"

#define TAG 1
#define TAG_LEFTWARD 2

static int left(const struct run *run)
{
    return (run->rank + run->ranks - 1) % run->ranks;
}

static int right(const struct run *run)
{
    return (run->rank + 1) % run->ranks;
}

void imb_ping_ping(struct run *run)
{
    MPI_Request request;

    MPI_Isend(run->send, run->count, run->datatype->mpi, run->peer, TAG, run->comm, &request);
    MPI_Recv(run->recv, run->count, run->datatype->mpi, run->peer, TAG, run->comm,
             MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

void imb_sendrecv(struct run *run)
{
    MPI_Sendrecv(run->send, run->count, run->datatype->mpi, right(run), TAG, run->recv, run->count,
                 run->datatype->mpi, left(run), TAG, run->comm, MPI_STATUS_IGNORE);
}

void imb_exchange(struct run *run)
{
    MPI_Request requests[2];

    MPI_Isend(run->send, run->count, run->datatype->mpi, right(run), TAG, run->comm, &requests[0]);
    MPI_Isend(run->send, run->count, run->datatype->mpi, left(run), TAG_LEFTWARD, run->comm,
              &requests[1]);
    MPI_Recv(run->recv, run->count, run->datatype->mpi, left(run), TAG, run->comm,
             MPI_STATUS_IGNORE);
    MPI_Recv(run->recv + run->size_bytes, run->count, run->datatype->mpi, right(run), TAG_LEFTWARD,
             run->comm, MPI_STATUS_IGNORE);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

static size_t one(const struct run *run)
{
    (void)run;
    return 1;
}

static size_t two(const struct run *run)
{
    (void)run;
    return 2;
}

static void fill(struct run *run)
{
    data_fill(run->send, run->size_bytes, (struct origin){run->rank, 0, run->epoch});
}

static void expect_peer(struct run *run, struct pass *pass)
{
    pass_block(pass, run->recv, run->size_bytes, run->peer, 0);
}

static void expect_left(struct run *run, struct pass *pass)
{
    pass_block(pass, run->recv, run->size_bytes, left(run), 0);
}

static void expect_both(struct run *run, struct pass *pass)
{
    expect_left(run, pass);
    pass_block(pass, run->recv + run->size_bytes, run->size_bytes, right(run), 0);
}

const struct content imb_content_ping_ping = {one, one, fill, expect_peer};
const struct content imb_content_sendrecv = {one, one, fill, expect_left};
const struct content imb_content_exchange = {one, two, fill, expect_both};
