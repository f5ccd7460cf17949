/* What one run does: the job that the client is given on its command line and hands to the server.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum job_protocol { JOB_TCP, JOB_UDP };
enum job_test { JOB_LATENCY, JOB_BANDWIDTH, JOB_BIDIRECTIONAL };

/* How a program waits for the network: asleep in the kernel, asking again and again without
 * sleeping, or asking for LINK_LOOK_NS and asleep only then (a receiver; a sender sleeps at once).
 */
enum job_waiting { JOB_BLOCKING, JOB_BUSY_POLL, JOB_SPIN };

/* Whether calls on the data connection that find nothing make the kernel poll the interface:
 * SO_BUSY_POLL, and with SO_PREFER_BUSY_POLL instead of its interrupts, too (socket(7)). */
enum job_kernel_poll { JOB_KERNEL_POLL_NONE, JOB_KERNEL_POLL, JOB_KERNEL_POLL_PREFERRED };

struct job {
    enum job_protocol protocol;
    enum job_test test;
    enum job_waiting waiting;
    enum job_kernel_poll kernel_poll;
    uint64_t size_bytes;
    uint64_t messages; /* in each direction, in the timed region */
    uint64_t warmup_messages;
    uint64_t seconds;  /* TCP one way: what is measured, in place of a number of messages; 0: not */
    uint64_t margin_s; /* then left out before and after it */
    bool no_delay;     /* TCP streams: no message waits to be joined with the next */
    bool zero_copy;    /* TCP: the kernel borrows the pages of messages */
    unsigned data_port; /* UDP: the client's port, in host order; 0 for TCP */
};

#define JOB_LINE_BYTES 160
#define JOB_SIZE_MAX_BYTES (1ull << 30)
#define JOB_UDP_SIZE_MAX_BYTES 65507ull /* 65535 less the IPv4 and UDP headers */
#define JOB_MESSAGES_MAX 1000000000ull
#define JOB_SECONDS_MAX 100000ull

/* Messages whose every byte is compared, before the job ends and outside the timed region. */
#define JOB_CHECKED_MESSAGES 4ull

extern const char *const job_protocol_names[];
extern const char *const job_test_names[];
extern const char *const job_waiting_names[];
extern const char *const job_kernel_poll_names[];

/* Index of `name` in a list of names that ends with NULL, or -1. */
int job_name_index(const char *const *names, const char *name);

/* One line of text for the control connection, with its newline. Returns its length. */
size_t job_format(const struct job *job, char line[JOB_LINE_BYTES]);

/* The reverse. Returns 0, or -1 if the line is not a job that this program can do. */
int job_parse(struct job *job, const char *line);

/* NULL if the numbers are in range, else what is allowed. */
const char *job_problem(const struct job *job);
