/* The table of the group, and the calls in their three forms, all from the list in calls.h. */

#include "collective/calls.h"
#include "collective/collective.h"
#include "collective/content.h"
#include "mpi/methods.h"
#include "mpi/support.h"

#define SIZE_MAX_BYTES (1u << 20)

#ifdef HAS_PERSISTENT_COLLECTIVES
#define PERSISTENT(code) code
#else
#define PERSISTENT(code)
#endif

#ifndef HAS_NEIGHBOURS
#undef NEIGHBOURS
#define NEIGHBOURS(C)
#endif

/* name(), iname() and name_init() */
#define DEFINE(name, Name, among, moves, sums, arguments)                                          \
    static void name(struct run *run)                                                              \
    {                                                                                              \
        const struct collective *state = run->state;                                               \
                                                                                                   \
        (void)state;                                                                               \
        MPI_##Name(BARE arguments);                                                                \
    }                                                                                              \
                                                                                                   \
    static void i##name(struct run *run, MPI_Request *request)                                     \
    {                                                                                              \
        const struct collective *state = run->state;                                               \
                                                                                                   \
        (void)state;                                                                               \
        MPI_I##name(BARE arguments, request);                                                      \
    }                                                                                              \
    PERSISTENT(static void name##_init(struct run *run, MPI_Request *request) {                    \
        const struct collective *state = run->state;                                               \
                                                                                                   \
        (void)state;                                                                               \
        MPI_##Name##_init(BARE arguments, MPI_INFO_NULL, request);                                 \
    })

COLLECTIVES(DEFINE)
NEIGHBOURS(DEFINE)
DEFINE(barrier, Barrier, collective, none, false, (run->comm))

#define COMMON(moves, sums)                                                                        \
    .shape = SHAPE_ALL, .content = &content_##moves, .reduces = sums, .size_min_bytes = 1,         \
    .size_max_bytes = SIZE_MAX_BYTES
#define OPEN(among) .open = among##_open, .close = collective_close
#define OPEN_PERSISTENT(among)                                                                     \
    .open = among##_open_persistent, .close = collective_close_persistent,                         \
    .step = collective_step_persistent

#define BLOCKING_ENTRY(name_, Name, among, moves, sums, arguments)                                 \
    {.name = #name_,                                                                               \
     .title = #Name " Latency",                                                                    \
     .method = &method_collective,                                                                 \
     .step = name_,                                                                                \
     .parameters = PARAMETERS_##among,                                                             \
     OPEN(among),                                                                                  \
     COMMON(moves, sums)},
#define NON_BLOCKING_ENTRY(name_, Name, among, moves, sums, arguments)                             \
    {.name = "i" #name_,                                                                           \
     .title = "Non-blocking " #Name " Latency",                                                    \
     .method = &method_overlap,                                                                    \
     .start = i##name_,                                                                            \
     .parameters = PARAMETERS_##among "c",                                                         \
     OPEN(among),                                                                                  \
     COMMON(moves, sums)},
#define PERSISTENT_ENTRY(name_, Name, among, moves, sums, arguments)                               \
    {.name = #name_ "_persistent",                                                                 \
     .title = "Persistent " #Name " Latency",                                                      \
     .method = &method_collective,                                                                 \
     .start = name_##_init,                                                                        \
     .parameters = PARAMETERS_##among,                                                             \
     OPEN_PERSISTENT(among),                                                                       \
     COMMON(moves, sums)},

/* Neighbours depend on -N. */
#define PARAMETERS_collective ""
#define PARAMETERS_neighbour "n"

/* clang-format off */
const struct benchmark collective_benchmarks[] = {
    {"barrier", "Barrier Latency", SHAPE_ALL, &method_collective, .step = barrier,
     OPEN(collective)},
    COLLECTIVES(BLOCKING_ENTRY)
    NEIGHBOURS(BLOCKING_ENTRY)
    {"ibarrier", "Non-blocking Barrier Latency", SHAPE_ALL, &method_overlap, .start = ibarrier,
     OPEN(collective), .parameters = "c"},
    COLLECTIVES(NON_BLOCKING_ENTRY)
    NEIGHBOURS(NON_BLOCKING_ENTRY)
#ifdef HAS_PERSISTENT_COLLECTIVES
    {"barrier_persistent", "Persistent Barrier Latency", SHAPE_ALL, &method_collective,
     .start = barrier_init, OPEN_PERSISTENT(collective)},
    COLLECTIVES(PERSISTENT_ENTRY)
    NEIGHBOURS(PERSISTENT_ENTRY)
#endif
    {.name = NULL},
};
/* clang-format on */
