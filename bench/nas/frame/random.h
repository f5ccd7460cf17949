/*
 * The random numbers of the NAS benchmarks (NAS-95-020, section 2.3): x' = a x mod 2^46, as
 * fractions x' / 2^46 in (0, 1). Products need 92 bits, of which the lower 46 count, so that
 * 64-bit arithmetic gives them exactly.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define RANDOM_BITS 46
#define RANDOM_MASK ((UINT64_C(1) << RANDOM_BITS) - 1)
#define RANDOM_UNIT 0x1p-46

/* 5^13, the multiplier of every program. */
#define RANDOM_MULTIPLIER UINT64_C(1220703125)
/* The seed of all programs but EP. */
#define RANDOM_SEED UINT64_C(314159265)

/* The next state with multiplier `a`. */
static inline uint64_t random_step(uint64_t a, uint64_t state)
{
    return a * state & RANDOM_MASK;
}

/* Moves the state on and returns it as a fraction. */
static inline double random_next(uint64_t *state)
{
    *state = random_step(RANDOM_MULTIPLIER, *state);
    return RANDOM_UNIT * (double)(int64_t)*state;
}

/* a^exponent mod 2^46: the multiplier that makes `exponent` steps at once. */
uint64_t random_power(uint64_t a, uint64_t exponent);

/* The state `steps` steps after `state`. */
uint64_t random_skip(uint64_t state, uint64_t steps);

/* Writes the next `count` fractions, and moves the state on. */
void random_fill(uint64_t *state, size_t count, double *fractions);
