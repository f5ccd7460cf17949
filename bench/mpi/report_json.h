/* The line of a sample in JSON. */
#pragma once

#include "mpi/run.h"
#include "mpi/sample.h"

#include <stdio.h>

/* `percentiles` are those beside minimum and maximum; the times of the spread are sorted. */
void report_json(FILE *out, const struct run *run, const struct sample *sample,
                 const double *percentiles, size_t percentile_count);
