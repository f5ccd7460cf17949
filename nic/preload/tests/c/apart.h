/* Memory of which a part can be unmapped and stays unmapped. */
#ifndef APART_H
#define APART_H

#include <stdatomic.h>
#include <sys/mman.h>

#include "urxe_test.h"

/* A new mapping of `bytes` (under 16 MiB) with `rights` (PROT_READ and so on), far below all
 * others. The kernel gives out the highest addresses that are free: elsewhere another thread's
 * memory, or a sanitizer's, may be in a hole as soon as there is one. Sanitizers leave these
 * addresses to the program. */
static inline char *map_apart(size_t bytes, int rights)
{
    static _Atomic uintptr_t next = (uintptr_t)1 << 45;
    enum { STEP = 1 << 24, FLAGS = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE };
    char *at = (char *)atomic_fetch_add(&next, STEP), *memory;

    CHECK(bytes < STEP);
    memory = mmap(at, bytes, rights, FLAGS, -1, 0);
    CHECK(memory == at);
    return memory;
}

#endif
