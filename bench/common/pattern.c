#include "common/pattern.h"

/* A multiplier that spreads neighbouring offsets over all bytes (Knuth's golden-ratio hash). */
#define SPREAD 2654435761u

uint8_t pattern_byte(size_t offset)
{
    return (uint8_t)(((uint32_t)offset * SPREAD) >> 24);
}

void pattern_fill_from(uint8_t *data, size_t size_bytes, uint32_t origin)
{
    for (size_t i = 0; i < size_bytes; i++)
        data[i] = pattern_byte(origin + i);
}

size_t pattern_wrong_bytes(const uint8_t *data, size_t size_bytes, uint32_t origin)
{
    size_t wrong_bytes = 0;

    for (size_t i = 0; i < size_bytes; i++)
        wrong_bytes += data[i] != pattern_byte(origin + i);
    return wrong_bytes;
}

void pattern_fill(uint8_t *message, size_t size_bytes)
{
    pattern_fill_from(message, size_bytes, 0);
}

size_t pattern_check(const uint8_t *data, size_t length_bytes, uint64_t stream_offset,
                     size_t message_bytes)
{
    for (size_t i = 0; i < length_bytes; i++)
        if (data[i] != pattern_byte((size_t)((stream_offset + i) % message_bytes)))
            return i;
    return length_bytes;
}
