/* The result of a run as JSON. */
#pragma once

#include "net/session.h"

#include <stdio.h>

/* Sorts the round trips of the outcome in place. Latencies are half a round trip. */
void report_write(FILE *out, const struct job *job, struct outcome *outcome);
