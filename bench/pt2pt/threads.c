#include "pt2pt/threads.h"

#include "mpi/timing.h"
#include "mpi/units.h"
#include "pt2pt/forms.h"

#include <pthread.h>
#include <stdlib.h>

/*
 * The round trips are dealt out: sender thread k does every k-th of them. The receiving side has as
 * many round trips in all, taken by its threads in turn, so that no thread waits for a message that
 * never comes. Tags tell the senders apart: the answer goes back with the tag of its question.
 */
struct worker {
    pthread_t thread;
    struct run *run;
    int index;
    uint64_t rounds; /* of this thread */
    uint64_t *times_ns;
    uint8_t *buffer; /* where it receives */
};

static void ask(struct worker *worker)
{
    struct run *run = worker->run;
    int tag = FORMS_TAG + worker->index;

    for (uint64_t i = 0; i < worker->rounds; i++) {
        double start_s = MPI_Wtime();

        MPI_Send(run->send, run->count, run->datatype->mpi, run->peer, tag, run->comm);
        MPI_Recv(worker->buffer, run->count, run->datatype->mpi, run->peer, tag, run->comm,
                 MPI_STATUS_IGNORE);
        worker->times_ns[i] = (uint64_t)((MPI_Wtime() - start_s) * NS_PER_S);
    }
}

static void answer(struct worker *worker)
{
    struct run *run = worker->run;

    for (uint64_t i = 0; i < worker->rounds; i++) {
        MPI_Status status;

        MPI_Recv(worker->buffer, run->count, run->datatype->mpi, run->peer, MPI_ANY_TAG, run->comm,
                 &status);
        MPI_Send(run->send, run->count, run->datatype->mpi, run->peer, status.MPI_TAG, run->comm);
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;

    if (worker->run->sends)
        ask(worker);
    else
        answer(worker);
    return NULL;
}

/* Threads of this rank. */
static int thread_count(const struct run *run)
{
    return run->sends ? run->options->threads_send : run->options->threads_receive;
}

/* `rounds` round trips in all; their times go to run->times_ns. */
static void run_threads(struct run *run, struct worker *workers, uint64_t rounds)
{
    int count = thread_count(run);
    uint64_t *times_ns = run->times_ns;

    for (int i = 0; i < count; i++) {
        struct worker *worker = &workers[i];

        worker->rounds = rounds / (uint64_t)count + ((uint64_t)i < rounds % (uint64_t)count);
        worker->times_ns = times_ns;
        times_ns += worker->rounds;
        if (pthread_create(&worker->thread, NULL, work, worker) != 0)
            MPI_Abort(run->comm, EXIT_FAILURE);
    }
    for (int i = 0; i < count; i++)
        pthread_join(workers[i].thread, NULL);
}

static struct worker *open_workers(struct run *run)
{
    int count = thread_count(run);
    struct worker *workers = calloc((size_t)count, sizeof *workers);

    if (workers == NULL)
        MPI_Abort(run->comm, EXIT_FAILURE);
    for (int i = 0; i < count; i++) {
        workers[i].run = run;
        workers[i].index = i;
        workers[i].buffer = run->recv + (size_t)i * run->size_bytes;
    }
    return workers;
}

static size_t one(const struct run *run)
{
    (void)run;
    return 1;
}

static size_t one_a_thread(const struct run *run)
{
    return (size_t)thread_count(run);
}

static void fill(struct run *run)
{
    data_fill(run->send, run->size_bytes, (struct origin){run->rank, 0, run->epoch});
}

/* Threads beyond the round trips get nothing. */
static void expect(struct run *run, struct pass *pass)
{
    for (int i = 0; i < thread_count(run) && (uint64_t)i < run->iterations; i++)
        pass_block(pass, run->recv + (size_t)i * run->size_bytes, run->size_bytes, run->peer, 0);
}

const struct content threads_content = {one, one_a_thread, fill, expect};

/* With -c, too, the data is checked once: the threads are not stopped between the iterations. */
static void measure(struct run *run, struct sample *sample)
{
    struct worker *workers = open_workers(run);

    if (run->warmup > 0)
        run_threads(run, workers, run->warmup < run->iterations ? run->warmup : run->iterations);
    timing_prepare(run);
    MPI_Barrier(run->comm);
    run_threads(run, workers, run->iterations);
    timing_check(run);
    free(workers);
    sample->values[METRIC_LATENCY] = timing_total_ns(run) / (double)run->iterations / 2 * US_PER_NS;
    sample->spread = (struct spread){METRIC_LATENCY, run->times_ns, run->iterations, US_PER_NS / 2,
                                     .is_rate = false};
}

static const struct column columns[] = {{METRIC_LATENCY, false}, {METRIC_END, false}};

const struct method threads_method = {measure, columns, {8192, 1000, 100, 100, 10}};
