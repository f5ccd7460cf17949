/* What must be in the window, or have come out of it, after one-sided operations. */
#pragma once

#include "mpi/run.h"

extern const struct content onesided_put;
extern const struct content onesided_get;
extern const struct content onesided_accumulate;
extern const struct content onesided_get_accumulate;
extern const struct content onesided_fetch_and_add;
extern const struct content onesided_compare_and_swap;

/* Where message `index` of a bandwidth form is in this rank's buffers; its offset is that in the
 * window, too. */
size_t onesided_offset(const struct run *run, int index);

/* What fetch-and-op adds. */
int64_t onesided_addend(const struct run *run, int rank);
