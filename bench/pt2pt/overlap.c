#include "pt2pt/overlap.h"

#include "pt2pt/forms.h"

/* Rank 0 is the end that computes, so in the receiving form it is the second that sends. */
static void start(struct run *run, bool sends, MPI_Request *request)
{
    if (sends)
        MPI_Isend(run->send, run->count, run->datatype->mpi, run->peer, FORMS_TAG, run->comm,
                  request);
    else
        MPI_Irecv(run->recv, run->count, run->datatype->mpi, run->peer, FORMS_TAG, run->comm,
                  request);
}

void overlap_start_send(struct run *run, MPI_Request *request)
{
    start(run, run->sends, request);
}

void overlap_start_recv(struct run *run, MPI_Request *request)
{
    start(run, !run->sends, request);
}

/* Which end receives depends on the form. */
static void expect(struct run *run, struct pass *pass)
{
    bool first_sends = run->benchmark->start == overlap_start_send;

    if (run->sends != first_sends)
        pass_block(pass, run->recv, run->size_bytes, run->peer, 0);
}

static size_t one(const struct run *run)
{
    (void)run;
    return 1;
}

static void fill(struct run *run)
{
    data_fill(run->send, run->size_bytes, (struct origin){run->rank, 0, run->epoch});
}

const struct content content_one_way = {one, one, fill, expect};
