/*
 * Stockham's algorithm with four branches: each stage reads quarters of what is left to split, and
 * writes in the order of the next; the result is in order without a permutation. A last stage of
 * two branches where the length is no power of four.
 */
#include "nas/ft/lines.h"

#include <math.h>

struct lines lines_make(struct run *run, int length_max)
{
    const size_t count = (size_t)length_max * LANES;
    struct lines lines = {
        .length_max = length_max,
        .re = run_doubles(run, count),
        .im = run_doubles(run, count),
        .re_spare = run_doubles(run, count),
        .im_spare = run_doubles(run, count),
        .roots = run_memory(run, (size_t)length_max, sizeof(struct complex)),
    };

    for (int i = 0; i < length_max; i++) {
        double angle = -2 * acos(-1) * i / length_max;

        lines.roots[i] = (struct complex){cos(angle), sin(angle)};
    }
    return lines;
}

static void swap(double **a, double **b)
{
    double *kept = *a;

    *a = *b;
    *b = kept;
}

/* Exchanged real and imaginary parts turn a transform into its inverse. */
static void swap_parts(struct lines *lines)
{
    swap(&lines->re, &lines->im);
    swap(&lines->re_spare, &lines->im_spare);
}

/* Writes the four results of one element of four quarters, for all lanes. */
static inline void branch4(const double *restrict re, const double *restrict im, ptrdiff_t quarter,
                           double *restrict to_re, double *restrict to_im, ptrdiff_t step,
                           const struct complex roots[3])
{
    for (int i = 0; i < LANES; i++) {
        const double sum02_re = re[i] + re[i + 2 * quarter];
        const double sum02_im = im[i] + im[i + 2 * quarter];
        const double gap02_re = re[i] - re[i + 2 * quarter];
        const double gap02_im = im[i] - im[i + 2 * quarter];
        const double sum13_re = re[i + quarter] + re[i + 3 * quarter];
        const double sum13_im = im[i + quarter] + im[i + 3 * quarter];
        const double gap13_re = re[i + quarter] - re[i + 3 * quarter];
        const double gap13_im = im[i + quarter] - im[i + 3 * quarter];
        const double one_re = gap02_re + gap13_im, one_im = gap02_im - gap13_re;
        const double two_re = sum02_re - sum13_re, two_im = sum02_im - sum13_im;
        const double three_re = gap02_re - gap13_im, three_im = gap02_im + gap13_re;

        to_re[i] = sum02_re + sum13_re;
        to_im[i] = sum02_im + sum13_im;
        to_re[i + step] = one_re * roots[0].re - one_im * roots[0].im;
        to_im[i + step] = one_re * roots[0].im + one_im * roots[0].re;
        to_re[i + 2 * step] = two_re * roots[1].re - two_im * roots[1].im;
        to_im[i + 2 * step] = two_re * roots[1].im + two_im * roots[1].re;
        to_re[i + 3 * step] = three_re * roots[2].re - three_im * roots[2].im;
        to_im[i + 3 * step] = three_re * roots[2].im + three_im * roots[2].re;
    }
}

/* `left`: how long the pieces are that are not split yet; `done`: how many there are of them. */
static void stage4(struct lines *lines, int left, int done)
{
    const ptrdiff_t quarter = (ptrdiff_t)left / 4 * done * LANES;
    const ptrdiff_t step = (ptrdiff_t)done * LANES;
    const int root_step = lines->length_max / left;

    for (int piece = 0; piece < left / 4; piece++) {
        const struct complex roots[3] = {lines->roots[piece * root_step],
                                         lines->roots[2 * piece * root_step],
                                         lines->roots[3 * piece * root_step]};

        for (int i = 0; i < done; i++) {
            const ptrdiff_t from = ((ptrdiff_t)piece * done + i) * LANES;
            const ptrdiff_t to = ((ptrdiff_t)piece * 4 * done + i) * LANES;

            branch4(lines->re + from, lines->im + from, quarter, lines->re_spare + to,
                    lines->im_spare + to, step, roots);
        }
    }
    swap(&lines->re, &lines->re_spare);
    swap(&lines->im, &lines->im_spare);
}

static void stage2(struct lines *lines, int done)
{
    const ptrdiff_t half = (ptrdiff_t)done * LANES;
    const double *restrict re = lines->re;
    const double *restrict im = lines->im;
    double *restrict to_re = lines->re_spare;
    double *restrict to_im = lines->im_spare;

    for (ptrdiff_t i = 0; i < half; i++) {
        to_re[i] = re[i] + re[i + half];
        to_im[i] = im[i] + im[i + half];
        to_re[i + half] = re[i] - re[i + half];
        to_im[i + half] = im[i] - im[i + half];
    }
    swap(&lines->re, &lines->re_spare);
    swap(&lines->im, &lines->im_spare);
}

void lines_transform(struct lines *lines, int length, enum direction direction)
{
    int left = length;
    int done = 1;

    if (direction == INVERSE)
        swap_parts(lines);
    for (; left >= 4; left /= 4, done *= 4)
        stage4(lines, left, done);
    if (left == 2)
        stage2(lines, done);
    if (direction == INVERSE)
        swap_parts(lines);
}
