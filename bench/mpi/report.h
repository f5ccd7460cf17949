/* Writes results to standard output; called by rank 0 alone. The forms are in README.md. */
#pragma once

#include "mpi/run.h"
#include "mpi/sample.h"

/* What stands above the lines of a benchmark. */
void report_heading(const struct run *run);

/* One line. Sorts the times of the sample's spread. */
void report_sample(const struct run *run, struct sample *sample);
