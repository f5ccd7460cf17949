#include "common/pattern.h"

/* A multiplier that spreads neighbouring offsets over all bytes (Knuth's golden-ratio hash). */
#define SPREAD 2654435761u

uint8_t pattern_byte(size_t offset)
{
    return (uint8_t)(((uint32_t)offset * SPREAD) >> 24);
}

void pattern_fill(uint8_t *message, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++)
        message[i] = pattern_byte(i);
}

size_t pattern_check(const uint8_t *data, size_t length_bytes, uint64_t stream_offset,
                     size_t message_bytes)
{
    for (size_t i = 0; i < length_bytes; i++)
        if (data[i] != pattern_byte((size_t)((stream_offset + i) % message_bytes)))
            return i;
    return length_bytes;
}
