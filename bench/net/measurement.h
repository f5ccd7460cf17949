/* What one end measured in the timed region. */
#pragma once

#include "net/link.h"

#include <stdint.h>

struct measurement {
    struct link_settings link; /* of the data connection, after the last message */
    uint64_t elapsed_ns;
    uint64_t cpu_ns; /* user and system time of this end within the timed region */
    uint64_t sent_bytes;
    uint64_t received_bytes;
    uint64_t *round_trips_ns; /* latency, at the client: one value a message; else NULL. Owned by
                                 what made it */
};
