#include "mpi/world.h"

#include <stdbool.h>
#include <string.h>

void world_write_library(FILE *out)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    bool gap = false;

    MPI_Get_library_version(version, &length);
    fputc('"', out);
    for (const char *at = version;
         *at != '\0' && strchr(",\n\"\\", *at) == NULL && strncmp(at, ". ", 2) != 0; at++) {
        bool blank = (unsigned char)*at <= ' ';

        if (!blank && gap)
            fputc(' ', out);
        if (!blank)
            fputc(*at, out);
        gap = blank;
    }
    fputc('"', out);
}

int world_nodes(MPI_Comm comm)
{
    MPI_Comm node;
    int rank_on_node, nodes;

    MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &rank_on_node);
    int first = rank_on_node == 0;

    MPI_Allreduce(&first, &nodes, 1, MPI_INT, MPI_SUM, comm);
    MPI_Comm_free(&node);
    return nodes;
}
