/*
 * Fourier transforms of several lines at once: LANES lines side by side, so that every operation is
 * on LANES neighbours in memory, and real and imaginary parts apart.
 */
#pragma once

#include "nas/frame/run.h"

#define LANES 8

/* exp(-i) or exp(+i) */
enum direction { FORWARD, INVERSE };

struct complex {
    double re;
    double im;
};

/* Room for LANES lines, twice: element i of line l is at [i * LANES + l]. */
struct lines {
    int length_max;
    double *re;
    double *im;
    double *re_spare;
    double *im_spare;
    struct complex *roots; /* of length_max */
};

struct lines lines_make(struct run *run, int length_max);

/* Transforms what is in re and im, LANES lines of `length` (a power of two up to length_max),
 * without a factor. The result is in re and im, which then may be other memory. */
void lines_transform(struct lines *lines, int length, enum direction direction);
