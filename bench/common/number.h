/* Numbers on a command line. */
#pragma once

#include <stdint.h>

/* Reads a whole number with K, M or G (of 1024) after it. Returns what follows it, or NULL. */
const char *number_read(const char *text, uint64_t *number);
