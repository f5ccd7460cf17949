/* The memory of a job's messages: what is sent, and where what comes is put. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct memory {
    void *allocation;
    uint8_t *outgoing; /* one message, filled with the pattern */
    uint8_t *incoming;
    size_t incoming_bytes; /* whole pages */
};

/* Room for a message of `message_bytes` and, apart from it, for at least `incoming_bytes`. Every
 * page has been touched. Return 0, or -1 if there is not so much memory. */
int memory_allocate(struct memory *memory, size_t message_bytes, size_t incoming_bytes);
void memory_free(struct memory *memory);
