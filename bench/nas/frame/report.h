/* Writes a result to standard output; called by rank 0 alone. The forms are in ../README.md. */
#pragma once

#include "nas/frame/run.h"

/* The text that NPB prints, line by line of the same form. The heading comes before the run. */
void report_heading(const struct run *run);
void report_text(const struct run *run);

/* One line of JSON. */
void report_json(const struct run *run);
