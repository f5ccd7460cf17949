/* The sparse matrix of CG: a sum of outer products of random sparse vectors. */
#pragma once

#include "nas/frame/run.h"

/* A range of rows or columns, from 0. */
struct span {
    int first;
    int count;
};

/* What the class says of the matrix. */
struct matrix_kind {
    int order;
    int nonzeros; /* of a random vector */
    double shift; /* of the diagonal */
};

/* A block of the matrix by rows; row i has the entries starts[i] to starts[i + 1]. Columns count
 * from the block's first and ascend within a row. */
struct matrix {
    int rows;
    int64_t *starts;
    int *columns;
    double *values;
};

/* Makes the block that these rows and columns meet in. Every rank draws all vectors and keeps what
 * it needs of them. */
struct matrix matrix_make(struct run *run, const struct matrix_kind *kind, struct span rows,
                          struct span columns);

/* Upper bound of the memory that takes on one of `row_parts` x `column_parts` ranks. */
uint64_t matrix_bytes(const struct matrix_kind *kind, int row_parts, int column_parts);

/* result = matrix * vector */
void matrix_multiply(const struct matrix *matrix, const double *vector, double *result);
