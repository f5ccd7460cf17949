#include "net/memory.h"

#include "common/pattern.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES ((size_t)4096)

/*
 * Messages begin half a page after the start of one. The kernel fills pages of its own from their
 * start on, and a few bytes of the control conversation may be there first. To copy a message from
 * the start of a page to a few bytes after the start of another is what AMD's Zen 3 and 4 do at a
 * tenth of their speed. REP MOVSB compares addresses by their last 12 bits, and takes the two for
 * an overlap (https://github.com/apache/opendal/issues/3665).
 */
#define PAGE_OFFSET_BYTES (PAGE_BYTES / 2)

static size_t whole_pages(size_t bytes)
{
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

int memory_allocate(struct memory *memory, size_t message_bytes, size_t incoming_bytes)
{
    size_t outgoing_bytes = whole_pages(message_bytes);
    size_t all_bytes;

    memory->incoming_bytes = whole_pages(incoming_bytes);
    all_bytes = PAGE_OFFSET_BYTES + outgoing_bytes + memory->incoming_bytes;
    if (posix_memalign(&memory->allocation, PAGE_BYTES, all_bytes) != 0) {
        memory->allocation = NULL;
        return -1;
    }
    memset(memory->allocation, 0, all_bytes); /* page faults belong before the timed region */
    memory->outgoing = (uint8_t *)memory->allocation + PAGE_OFFSET_BYTES;
    memory->incoming = memory->outgoing + outgoing_bytes;
    pattern_fill(memory->outgoing, message_bytes);
    return 0;
}

void memory_free(struct memory *memory)
{
    free(memory->allocation);
    memory->allocation = NULL;
}
