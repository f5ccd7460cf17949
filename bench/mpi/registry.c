#include "mpi/registry.h"

#include "collective/collective.h"
#include "imb/imb.h"
#include "mesh/mesh.h"
#include "onesided/onesided.h"
#include "pt2pt/pt2pt.h"
#include "startup/startup.h"

#include <strings.h>

/* clang-format off */
const struct group registry[] = {
    {"pt2pt", pt2pt_benchmarks},
    {"collective", collective_benchmarks},
    {"onesided", onesided_benchmarks},
    {"imb", imb_benchmarks},
    {"mesh", mesh_benchmarks},
    {"startup", startup_benchmarks},
    {NULL, NULL},
};
/* clang-format on */

/* OMB's names of what has another name here. */
static const char *own_name(const char *name)
{
    if (strcasecmp(name, "bw_fan_in") == 0)
        return "incast";
    return strcasecmp(name, "bw_fan_out") == 0 ? "outcast" : name;
}

const struct benchmark *registry_find(const char *name, const struct group **group)
{
    name = own_name(name);
    for (const struct group *each = registry; each->name != NULL; each++)
        for (const struct benchmark *entry = each->benchmarks; entry->name != NULL; entry++)
            if (strcasecmp(entry->name, name) == 0) {
                *group = each;
                return entry;
            }
    return NULL;
}
