/* All benchmarks. Each group is a table in its own folder; the last entry of a table has no name.
 */
#pragma once

#include "mpi/run.h"

struct group {
    const char *name;
    const struct benchmark *benchmarks;
};

/* Ends with a group without a name. */
extern const struct group registry[];

/* The benchmark of that name, in any case (IMB takes pingpong, too), and its group; NULL if there
 * is none. */
const struct benchmark *registry_find(const char *name, const struct group **group);
