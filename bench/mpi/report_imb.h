/* IMB's tables. */
#pragma once

#include "mpi/run.h"
#include "mpi/sample.h"

void report_imb_heading(const struct run *run);
void report_imb_line(const struct run *run, const struct sample *sample);
