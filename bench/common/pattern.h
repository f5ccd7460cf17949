/* The content of messages: a pattern that depends on the position, so that a shift or a hole shows.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The byte at `offset` of every message. */
uint8_t pattern_byte(size_t offset);

/* Fills a buffer with the pattern as it is from `origin` on: different origins, different content.
 */
void pattern_fill_from(uint8_t *data, size_t size_bytes, uint32_t origin);

/* How many bytes of a buffer are not what pattern_fill_from(data, size_bytes, origin) writes. */
size_t pattern_wrong_bytes(const uint8_t *data, size_t size_bytes, uint32_t origin);

/* Fills a message. */
void pattern_fill(uint8_t *message, size_t size_bytes);

/*
 * Compares `length_bytes` of a stream of equal messages of `message_bytes` each, starting at
 * `stream_offset` of the stream. Returns the offset in `data` of the first wrong byte, or
 * `length_bytes` if all are right.
 */
size_t pattern_check(const uint8_t *data, size_t length_bytes, uint64_t stream_offset,
                     size_t message_bytes);
