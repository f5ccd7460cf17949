/* What one run does: the job that the client is given on its command line and hands to the server.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum job_protocol { JOB_TCP, JOB_UDP };
enum job_test { JOB_LATENCY, JOB_BANDWIDTH, JOB_BIDIRECTIONAL };

/* How a program waits for the network: asleep in the kernel, or asking again and again without
 * sleeping. */
enum job_waiting { JOB_BLOCKING, JOB_BUSY_POLL };

struct job {
    enum job_protocol protocol;
    enum job_test test;
    enum job_waiting waiting;
    uint64_t size_bytes;
    uint64_t messages; /* in each direction, in the timed region */
    uint64_t warmup_messages;
    bool no_delay;      /* TCP streams: no message waits to be joined with the next */
    bool zero_copy;     /* TCP: the kernel borrows the pages of messages */
    unsigned data_port; /* UDP: the client's port, in host order; 0 for TCP */
};

#define JOB_LINE_BYTES 160
#define JOB_SIZE_MAX_BYTES (1ull << 30)
#define JOB_UDP_SIZE_MAX_BYTES 65507ull /* 65535 less the IPv4 and UDP headers */
#define JOB_MESSAGES_MAX 1000000000ull

/* Messages whose every byte is compared, before the job ends and outside the timed region. */
#define JOB_CHECKED_MESSAGES 4ull

extern const char *const job_protocol_names[];
extern const char *const job_test_names[];
extern const char *const job_waiting_names[];

/* Index of `name` in a list of names that ends with NULL, or -1. */
int job_name_index(const char *const *names, const char *name);

/* One line of text for the control connection, with its newline. Returns its length. */
size_t job_format(const struct job *job, char line[JOB_LINE_BYTES]);

/* The reverse. Returns 0, or -1 if the line is not a job that this program can do. */
int job_parse(struct job *job, const char *line);

/* NULL if the numbers are in range, else what is allowed. */
const char *job_problem(const struct job *job);
