#include "nas/frame/random.h"

/* How many chains of products run side by side in random_fill: a product waits for the one before
 * it, but not for its neighbours. */
#define LANES 8

uint64_t random_power(uint64_t a, uint64_t exponent)
{
    uint64_t power = 1;

    for (; exponent > 0; exponent >>= 1) {
        if (exponent & 1)
            power = random_step(a, power);
        a = random_step(a, a);
    }
    return power;
}

uint64_t random_skip(uint64_t state, uint64_t steps)
{
    return random_step(random_power(RANDOM_MULTIPLIER, steps), state);
}

void random_fill(uint64_t *state, size_t count, double *fractions)
{
    const uint64_t stride = random_power(RANDOM_MULTIPLIER, LANES);
    uint64_t lanes[LANES];
    size_t i = 0;

    if (count >= LANES) {
        for (int lane = 0; lane < LANES; lane++)
            lanes[lane] = *state = random_step(RANDOM_MULTIPLIER, *state);
        for (; i + LANES <= count; i += LANES) {
            *state = lanes[LANES - 1];
            for (int lane = 0; lane < LANES; lane++) {
                fractions[i + (size_t)lane] = RANDOM_UNIT * (double)(int64_t)lanes[lane];
                lanes[lane] = random_step(stride, lanes[lane]);
            }
        }
    }
    for (; i < count; i++)
        fractions[i] = random_next(state);
}
