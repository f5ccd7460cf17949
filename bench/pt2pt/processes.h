/* Latency of processes that have forked. */
#pragma once

#include "mpi/run.h"

/*
 * -t SEND:RECV processes at each end, as in osu_latency_mp: the first is the rank and goes back and
 * forth alone. The others are forked off it and wait, with all of its memory shared until a process
 * writes to it.
 */
void processes_open(struct run *run);
void processes_close(struct run *run);
