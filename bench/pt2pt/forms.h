/* The forms of a transfer between two ranks: steps, and what opens and closes them. */
#pragma once

#include "mpi/run.h"

#define FORMS_TAG 1
#define FORMS_TAG_ACK 2

/* Blocking sends and receives, there and back. */
void forms_ping_pong(struct run *run);

/* A window of non-blocking messages, then the acknowledgement of all; the one way, or both at once.
 */
void forms_window_open(struct run *run);
void forms_window_close(struct run *run);
void forms_window_one_way(struct run *run);
void forms_window_both_ways(struct run *run);

/* The receiver says that it has everything. */
void forms_acknowledge(struct run *run);

/* The same with persistent requests. */
void forms_persistent_open(struct run *run);
void forms_persistent_open_window(struct run *run);
void forms_persistent_close(struct run *run);
void forms_persistent_ping_pong(struct run *run);
void forms_persistent_one_way(struct run *run);
void forms_persistent_both_ways(struct run *run);
