/* Vectors of doubles, as wide as the processor's that the compiler may use: lines of the grid that
 * are solved side by side. */
#pragma once

#if defined __AVX512F__
#define VECTOR_BYTES 64
#elif defined __AVX__
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif

/* Arithmetic works on each of its numbers. May point at doubles. */
typedef double vector __attribute__((vector_size(VECTOR_BYTES), may_alias));

#define VECTOR_DOUBLES (VECTOR_BYTES / (int)sizeof(double))

/* Lines that are solved together: at least half of a cache line. */
#define LANES (VECTOR_DOUBLES < 4 ? 4 : VECTOR_DOUBLES)
#define LANE_VECTORS (LANES / VECTOR_DOUBLES)
