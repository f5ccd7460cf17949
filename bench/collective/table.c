/* The table of the group, and the calls in their three forms, all from the list in calls.h. */

#include "collective/calls.h"
#include "collective/collective.h"
#include "collective/content.h"
#include "mpi/methods.h"

#define SIZE_MAX_BYTES (1u << 20)

/* MPI-4 brought persistent collectives; a simulator may be older. */
#if MPI_VERSION >= 4
#define PERSISTENT(code) code
#else
#define PERSISTENT(code)
#endif

/* name(), iname() and name_init() */
#define DEFINE(name, Name, moves, sums, arguments)                                                 \
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
DEFINE(barrier, Barrier, none, false, (run->comm))

#define COMMON(moves, sums)                                                                        \
    .shape = SHAPE_ALL, .content = &content_##moves, .reduces = sums, .size_min_bytes = 1,         \
    .size_max_bytes = SIZE_MAX_BYTES
#define OPEN .open = collective_open, .close = collective_close
#define OPEN_PERSISTENT                                                                            \
    .open = collective_open_persistent, .close = collective_close_persistent,                      \
    .step = collective_step_persistent

#define BLOCKING_ENTRY(name_, Name, moves, sums, arguments)                                        \
    {.name = #name_,                                                                               \
     .title = #Name " Latency",                                                                    \
     .method = &method_collective,                                                                 \
     .step = name_,                                                                                \
     OPEN,                                                                                         \
     COMMON(moves, sums)},
#define NON_BLOCKING_ENTRY(name_, Name, moves, sums, arguments)                                    \
    {.name = "i" #name_,                                                                           \
     .title = "Non-blocking " #Name " Latency",                                                    \
     .method = &method_overlap,                                                                    \
     .start = i##name_,                                                                            \
     .parameters = "c",                                                                            \
     OPEN,                                                                                         \
     COMMON(moves, sums)},
#define PERSISTENT_ENTRY(name_, Name, moves, sums, arguments)                                      \
    {.name = #name_ "_persistent",                                                                 \
     .title = "Persistent " #Name " Latency",                                                      \
     .method = &method_collective,                                                                 \
     .start = name_##_init,                                                                        \
     OPEN_PERSISTENT,                                                                              \
     COMMON(moves, sums)},

/* clang-format off */
const struct benchmark collective_benchmarks[] = {
    {"barrier", "Barrier Latency", SHAPE_ALL, &method_collective, .step = barrier, OPEN},
    COLLECTIVES(BLOCKING_ENTRY)
    {"ibarrier", "Non-blocking Barrier Latency", SHAPE_ALL, &method_overlap, .start = ibarrier,
     OPEN, .parameters = "c"},
    COLLECTIVES(NON_BLOCKING_ENTRY)
#if MPI_VERSION >= 4
    {"barrier_persistent", "Persistent Barrier Latency", SHAPE_ALL, &method_collective,
     .start = barrier_init, OPEN_PERSISTENT},
    COLLECTIVES(PERSISTENT_ENTRY)
#endif
    {.name = NULL},
};
/* clang-format on */
