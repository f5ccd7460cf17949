/*
 * Sums over the four rows beside a row, and over the four rows across its edges, are made once for
 * the whole row: each serves three points.
 */
#include "nas/mg/stencil.h"

/* A: the discrete Laplacian. Its weight of faces is 0. */
#define A_POINT (-8.0 / 3.0)
#define A_EDGE (1.0 / 6.0)
#define A_CORNER (1.0 / 12.0)

/* The four rows beside row (j, k), and the four across. */
static void sum_rows(const struct box *box, const double *values, int j, int k,
                     double *restrict beside, double *restrict across)
{
    const double *restrict south = box_row(box, values, j - 1, k);
    const double *restrict north = box_row(box, values, j + 1, k);
    const double *restrict below = box_row(box, values, j, k - 1);
    const double *restrict above = box_row(box, values, j, k + 1);
    const double *restrict south_below = box_row(box, values, j - 1, k - 1);
    const double *restrict north_below = box_row(box, values, j + 1, k - 1);
    const double *restrict south_above = box_row(box, values, j - 1, k + 1);
    const double *restrict north_above = box_row(box, values, j + 1, k + 1);

    for (int i = 0; i < box->width; i++) {
        beside[i] = south[i] + north[i] + below[i] + above[i];
        across[i] = south_below[i] + north_below[i] + south_above[i] + north_above[i];
    }
}

void stencil_residual(const struct box *box, const double *u, const double *v, double *residual,
                      double *scratch)
{
    double *restrict beside = scratch;
    double *restrict across = scratch + box->width;

    for (int k = 1; k <= box->points[2]; k++)
        for (int j = 1; j <= box->points[1]; j++) {
            const double *restrict here = box_row(box, u, j, k);
            const double *given = box_row(box, v, j, k);
            double *result = box_row_of(box, residual, j, k);

            sum_rows(box, u, j, k, beside, across);
        /* `given` may be `result`, but then it is the same element. */
#pragma GCC ivdep
            for (int i = 1; i <= box->points[0]; i++)
                result[i] = given[i] - A_POINT * here[i] -
                            A_EDGE * (across[i] + beside[i - 1] + beside[i + 1]) -
                            A_CORNER * (across[i - 1] + across[i + 1]);
        }
}

void stencil_smooth(const struct box *box, const double *residual, double *u, const double c[3],
                    double *scratch)
{
    const double point = c[0], face = c[1], edge = c[2];
    double *restrict beside = scratch;
    double *restrict across = scratch + box->width;

    for (int k = 1; k <= box->points[2]; k++)
        for (int j = 1; j <= box->points[1]; j++) {
            const double *restrict here = box_row(box, residual, j, k);
            double *restrict result = box_row_of(box, u, j, k);

            sum_rows(box, residual, j, k, beside, across);
            for (int i = 1; i <= box->points[0]; i++)
                result[i] += point * here[i] + face * (here[i - 1] + here[i + 1] + beside[i]) +
                             edge * (across[i] + beside[i - 1] + beside[i + 1]);
        }
}

void stencil_restrict(const struct box *fine_box, const double *fine, const struct box *coarse_box,
                      double *coarse, double *scratch)
{
    double *restrict beside = scratch;
    double *restrict across = scratch + fine_box->width;

    for (int k = 1; k <= coarse_box->points[2]; k++)
        for (int j = 1; j <= coarse_box->points[1]; j++) {
            const double *restrict here = box_row(fine_box, fine, 2 * j, 2 * k);
            double *restrict result = box_row_of(coarse_box, coarse, j, k);

            sum_rows(fine_box, fine, 2 * j, 2 * k, beside, across);
            for (int i = 1; i <= coarse_box->points[0]; i++)
                result[i] = 0.5 * here[2 * i] +
                            0.25 * (here[2 * i - 1] + here[2 * i + 1] + beside[2 * i]) +
                            0.125 * (beside[2 * i - 1] + beside[2 * i + 1] + across[2 * i]) +
                            0.0625 * (across[2 * i - 1] + across[2 * i + 1]);
        }
}

/* Adds a row of coarse points, times `weight`, to a fine row: fine point 2i is coarse point i, and
 * the one after it has halves of both its neighbours. */
static void add_row(const struct box *coarse_box, const double *restrict coarse, double weight,
                    double *restrict fine)
{
    const double half = 0.5 * weight;

    for (int i = 0; i <= coarse_box->points[0]; i++) {
        fine[2 * i] += weight * coarse[i];
        fine[2 * i + 1] += half * (coarse[i] + coarse[i + 1]);
    }
}

void stencil_interpolate(const struct box *coarse_box, const double *coarse,
                         const struct box *fine_box, double *fine, double *scratch)
{
    double *restrict north = scratch;
    double *restrict above = scratch + coarse_box->width;
    double *restrict both = scratch + 2 * (ptrdiff_t)coarse_box->width;

    for (int k = 0; k <= coarse_box->points[2]; k++)
        for (int j = 0; j <= coarse_box->points[1]; j++) {
            const double *restrict row = box_row(coarse_box, coarse, j, k);
            const double *restrict row_north = box_row(coarse_box, coarse, j + 1, k);
            const double *restrict row_above = box_row(coarse_box, coarse, j, k + 1);
            const double *restrict row_both = box_row(coarse_box, coarse, j + 1, k + 1);

            for (int i = 0; i < coarse_box->width; i++) {
                north[i] = row[i] + row_north[i];
                above[i] = row[i] + row_above[i];
                both[i] = north[i] + row_above[i] + row_both[i];
            }
            add_row(coarse_box, row, 1, box_row_of(fine_box, fine, 2 * j, 2 * k));
            add_row(coarse_box, north, 0.5, box_row_of(fine_box, fine, 2 * j + 1, 2 * k));
            add_row(coarse_box, above, 0.5, box_row_of(fine_box, fine, 2 * j, 2 * k + 1));
            add_row(coarse_box, both, 0.25, box_row_of(fine_box, fine, 2 * j + 1, 2 * k + 1));
        }
}
