/* The checksums that are published for FT: one after every iteration. */
#pragma once

#include "nas/frame/program.h"

#define FT_ITERATIONS_MAX 25

struct complex_sum {
    double re;
    double im;
};

extern const struct complex_sum ft_sums[CLASS_COUNT][FT_ITERATIONS_MAX];
