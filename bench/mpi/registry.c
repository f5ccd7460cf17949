#include "mpi/registry.h"

#include "pt2pt/pt2pt.h"

#include <string.h>

const struct group registry[] = {
    {"pt2pt", pt2pt_benchmarks},
    {NULL, NULL},
};

const struct benchmark *registry_find(const char *name, const struct group **group)
{
    for (const struct group *each = registry; each->name != NULL; each++)
        for (const struct benchmark *entry = each->benchmarks; entry->name != NULL; entry++)
            if (strcmp(entry->name, name) == 0) {
                *group = each;
                return entry;
            }
    return NULL;
}
