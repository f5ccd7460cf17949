/* Incast and outcast: all ranks to rank 0 at once, and rank 0 to all. */
#pragma once

#include "mpi/run.h"

extern const struct content content_fan_in;
extern const struct content content_fan_out;
extern const struct method fan_method;

void fan_open(struct run *run);
void fan_close(struct run *run);

/* A window from each of the others to rank 0, or to each of them, then the acknowledgements. */
void fan_in(struct run *run);
void fan_out(struct run *run);
