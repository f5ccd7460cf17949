/* Latency with several threads at both ends. */
#pragma once

#include "mpi/run.h"

/* -t SEND:RECV threads; each sender's ping is answered by whichever receiving thread gets it. */
extern const struct method threads_method;
extern const struct content threads_content;
