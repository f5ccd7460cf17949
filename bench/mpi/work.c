#include "mpi/work.h"

#include "mpi/units.h"

#ifdef SMPI_H

/* Simulated processors are told; a round is a nanosecond. */
static void compute(uint64_t rounds)
{
    smpi_execute((double)rounds / NS_PER_S);
}

struct work work_of_ns(double duration_ns)
{
    return (struct work){(uint64_t)duration_ns};
}

#else

#define CELLS 64
#define PROBE_ROUNDS 4096
#define PROBES 16

/* Each round depends on the one before; the cells stay in the first cache. */
static void compute(uint64_t rounds)
{
    double cells[CELLS];

    for (int i = 0; i < CELLS; i++)
        cells[i] = i;
    for (uint64_t round = 0; round < rounds; round++) {
        for (int i = 0; i < CELLS; i++)
            cells[i] = cells[i] * 0.5 + 1.0;
        /* The compiler must take the cells for used, or there is nothing to compute. */
        __asm__ volatile("" : : "g"(cells) : "memory");
    }
}

struct work work_of_ns(double duration_ns)
{
    double best_ns = 0;

    for (int i = 0; i < PROBES; i++) {
        double start_s = MPI_Wtime();

        compute(PROBE_ROUNDS);
        double ns = (MPI_Wtime() - start_s) * NS_PER_S;

        if (ns > 0 && (best_ns == 0 || ns < best_ns))
            best_ns = ns;
    }
    return (struct work){best_ns > 0 ? (uint64_t)(duration_ns / best_ns * PROBE_ROUNDS) : 0};
}

#endif

void work_do(struct work work, int test_calls, MPI_Request *request)
{
    uint64_t parts = (uint64_t)test_calls + 1;

    for (uint64_t i = 0; i < parts; i++) {
        int done;

        compute(work.rounds / parts + (i < work.rounds % parts));
        if (i + 1 < parts)
            MPI_Test(request, &done, MPI_STATUS_IGNORE);
    }
}
