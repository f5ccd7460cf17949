/* The loops around a benchmark's step, with the checks of the data before and after. */
#pragma once

#include "mpi/run.h"

/*
 * Steps that follow each other at once, as in a ping-pong: warm-up, then run->iterations steps
 * whose times are written to run->times_ns (their sum is the whole). With -c they are timed apart
 * instead.
 */
void timing_in_a_row(struct run *run);

/* Steps each with a barrier before it, as collectives are timed. */
void timing_apart(struct run *run);

/* Lowers run->iterations so that, by a step that is taken to find out, they take about `limit_s`
 * at most. Every rank calls it. */
void timing_limit(struct run *run, double limit_s);

/* Sum of run->times_ns. */
double timing_total_ns(const struct run *run);

/* Between samples and before loops: fresh data to send, and spoilt buffers to receive it. Every
 * rank calls it. */
void timing_prepare(struct run *run);

/* Counts what is wrong in what this rank received into run->wrong_bytes. */
void timing_check(struct run *run);
