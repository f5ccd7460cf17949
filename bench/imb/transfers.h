/* The transfers that IMB measures and OMB does not. Every rank both sends and receives. */
#pragma once

#include "mpi/run.h"

extern const struct content imb_content_ping_ping;
extern const struct content imb_content_sendrecv;
extern const struct content imb_content_exchange;

/* Both ends send at once, then receive. */
void imb_ping_ping(struct run *run);

/* A periodic chain: to the right neighbour, from the left. */
void imb_sendrecv(struct run *run);

/* To both neighbours and from both. */
void imb_exchange(struct run *run);
