#include "nas/frame/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The start of the kernel's identity: the same for all ranks that share its memory, also where
 * namespaces make them look like several nodes. */
static uint64_t kernel_identity(void)
{
    uint64_t identity = 0;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");

    if (file == NULL)
        return 0;
    if (fread(&identity, sizeof identity, 1, file) != 1)
        identity = 0;
    fclose(file);
    return identity;
}

/* What the kernel could give out without swapping, or 0. */
static uint64_t available_bytes(void)
{
    char line[128];
    unsigned long long kibibytes = 0;
    FILE *file = fopen("/proc/meminfo", "r");

    if (file == NULL)
        return 0;
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "MemAvailable: %llu kB", &kibibytes) == 1)
            break;
    fclose(file);
    return (uint64_t)kibibytes << 10;
}

/* How many of the ranks share this rank's memory. */
static unsigned ranks_here(MPI_Comm comm)
{
    uint64_t mine = kernel_identity();
    unsigned sharing = 0;
    int ranks;

    MPI_Comm_size(comm, &ranks);
    uint64_t *all = malloc((size_t)ranks * sizeof *all);

    if (all == NULL)
        abort();
    MPI_Allgather(&mine, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, comm);
    for (int i = 0; i < ranks; i++)
        sharing += all[i] == mine;
    free(all);
    return sharing;
}

uint64_t memory_rank_bytes(MPI_Comm comm, uint64_t limit_bytes)
{
    uint64_t share = (limit_bytes > 0 ? limit_bytes : available_bytes()) / ranks_here(comm);
    uint64_t least;

    MPI_Allreduce(&share, &least, 1, MPI_UINT64_T, MPI_MIN, comm);
    return least;
}

const char *memory_text(uint64_t bytes, char *text)
{
    if (bytes >= UINT64_C(1) << 30)
        snprintf(text, 16, "%.1f GiB", (double)bytes / 0x1p30);
    else
        snprintf(text, 16, "%.1f MiB", (double)bytes / 0x1p20);
    return text;
}
