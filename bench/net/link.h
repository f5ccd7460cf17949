/* The two connections of a run: control (lines of text over TCP) and data (TCP or UDP), and
 * whole-message calls. */
#pragma once

#include "common/failure.h"
#include "net/job.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A listening TCP socket on all addresses. -1 on failure. */
int link_listen(unsigned port, struct failure *failure);

int link_accept(int listener, struct failure *failure);

/* A TCP connection to a host name or address. -1 on failure. */
int link_connect(const char *host, unsigned port, struct failure *failure);

/*
 * A UDP socket that is connected to the peer of `control`, at `peer_port`, and bound to
 * `local_port` (0: any) of the address that `control` uses. -1 on failure.
 */
int link_udp(int control, unsigned local_port, struct failure *failure);
int link_udp_connect(int data, int control, unsigned peer_port, struct failure *failure);
unsigned link_local_port(int socket);

/* Small messages leave at once (TCP_NODELAY), or may wait for more (Nagle), which is what streams
 * use. */
int link_set_no_delay(int socket, bool no_delay);

/* How long a receiver that waits by JOB_SPIN asks before it sleeps, in nanoseconds, from the last
 * that came on: as long as a thread of urxe looks (SPIN_NS in nic/device/src/spin.rs). */
#define LINK_LOOK_NS 100000ull

/* What such a receiver remembers; zero after each time that something came. */
struct link_look {
    uint64_t until_ns;
    unsigned count;
};

/* After asking in vain: whether to ask again instead of sleeping. */
bool link_looks_again(struct link_look *look);

/* How long a call that finds nothing lets the kernel poll the interface (SO_BUSY_POLL), in
 * microseconds: as long as LINK_LOOK_NS. */
#define LINK_BUSY_POLL_US 100
/* Packets that the kernel takes in one round of such a poll (SO_BUSY_POLL_BUDGET): as in a round
 * after an interrupt (NAPI_POLL_WEIGHT of <linux/netdevice.h>) instead of 8. */
#define LINK_BUSY_POLL_BUDGET 64

/* Gives a data connection what `job->kernel_poll` says. Returns 0, or -1 where the kernel refuses.
 */
int link_set_kernel_poll(int data, const struct job *job, struct failure *failure);

/* `congestion_control` of a socket that has none: UDP. */
#define LINK_NO_CONGESTION_CONTROL "none"
#define LINK_NAME_BYTES 16 /* with the final 0; TCP_CA_NAME_MAX of <linux/tcp.h> */

/* What the kernel has settled for a data connection (tcp(7), socket(7)). */
struct link_settings {
    char congestion_control[LINK_NAME_BYTES];
    int mss_bytes;         /* 0: UDP */
    int send_buffer_bytes; /* with the kernel's own overhead, and as autotuning has left it */
    int receive_buffer_bytes;
    int busy_poll_us;     /* SO_BUSY_POLL; 0: UDP */
    int prefer_busy_poll; /* SO_PREFER_BUSY_POLL, 0 or 1 */
    int napi_id;          /* of the queue that packets came by; 0: they did not come by NAPI */
};

/* Return 0 or -1. */
int link_settings_of(int data, const struct job *job, struct link_settings *settings,
                     struct failure *failure);

/* One line with its newline; reading stops there and never takes a byte more. Returns 0 or -1. */
int link_write_line(int control, const char *line, struct failure *failure);
int link_read_line(int control, char *line, size_t line_bytes, struct failure *failure);

/*
 * Whole messages. Busy-polling spins on calls that do not block; blocking sleeps in them. A UDP
 * message that does not come within a second is a failure.
 */
int link_send(int data, const struct job *job, const uint8_t *message, struct failure *failure);
int link_receive(int data, const struct job *job, uint8_t *message, struct failure *failure);
