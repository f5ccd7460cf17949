#include "net/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* First word and version of the line: the two ends must be the same program. */
#define LINE_MAGIC "rocelab-sock 6"

const char *const job_protocol_names[] = {"tcp", "udp", NULL};
const char *const job_test_names[] = {"latency", "bandwidth", "bidirectional", NULL};
const char *const job_waiting_names[] = {"blocking", "busy-poll", "spin", NULL};
const char *const job_kernel_poll_names[] = {"none", "poll", "prefer", NULL};

int job_name_index(const char *const *names, const char *name)
{
    for (int i = 0; names[i] != NULL; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

size_t job_format(const struct job *job, char line[JOB_LINE_BYTES])
{
    return (size_t)snprintf(line, JOB_LINE_BYTES,
                            LINE_MAGIC " %s %s %s %s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
                                       " %" PRIu64 " %d %d %u\n",
                            job_protocol_names[job->protocol], job_test_names[job->test],
                            job_waiting_names[job->waiting],
                            job_kernel_poll_names[job->kernel_poll], job->size_bytes, job->messages,
                            job->warmup_messages, job->seconds, job->margin_s, job->no_delay,
                            job->zero_copy, job->data_port);
}

int job_parse(struct job *job, const char *line)
{
    char protocol[16], test[16], waiting[16], kernel_poll[16];
    int no_delay, zero_copy;
    int matched = sscanf(line,
                         LINE_MAGIC " %15s %15s %15s %15s %" SCNu64 " %" SCNu64 " %" SCNu64
                                    " %" SCNu64 " %" SCNu64 " %d %d %u",
                         protocol, test, waiting, kernel_poll, &job->size_bytes, &job->messages,
                         &job->warmup_messages, &job->seconds, &job->margin_s, &no_delay,
                         &zero_copy, &job->data_port);

    if (matched != 12)
        return -1;

    int protocol_index = job_name_index(job_protocol_names, protocol);
    int test_index = job_name_index(job_test_names, test);
    int waiting_index = job_name_index(job_waiting_names, waiting);
    int kernel_poll_index = job_name_index(job_kernel_poll_names, kernel_poll);

    if (protocol_index < 0 || test_index < 0 || waiting_index < 0 || kernel_poll_index < 0)
        return -1;
    job->protocol = (enum job_protocol)protocol_index;
    job->test = (enum job_test)test_index;
    job->waiting = (enum job_waiting)waiting_index;
    job->kernel_poll = (enum job_kernel_poll)kernel_poll_index;
    job->no_delay = no_delay != 0;
    job->zero_copy = zero_copy != 0;
    return job_problem(job) == NULL ? 0 : -1;
}

const char *job_problem(const struct job *job)
{
    if (job->size_bytes < 1 || job->size_bytes > JOB_SIZE_MAX_BYTES)
        return "--size must be 1 to 1073741824 (bytes)";
    if (job->protocol == JOB_UDP && job->size_bytes > JOB_UDP_SIZE_MAX_BYTES)
        return "--size must be 1 to 65507 (bytes) for UDP: a message is one datagram";
    if (job->messages < 1 || job->messages > JOB_MESSAGES_MAX)
        return "--messages must be 1 to 1000000000";
    if (job->warmup_messages > JOB_MESSAGES_MAX)
        return "--warmup must be 0 to 1000000000 (messages)";
    if (job->seconds > JOB_SECONDS_MAX || job->margin_s < 1 || job->margin_s > JOB_SECONDS_MAX)
        return "--seconds must be 0 to 100000, and --margin 1 to 100000";
    if (job->seconds > 0 && (job->protocol != JOB_TCP || job->test != JOB_BANDWIDTH))
        return "--seconds is for --test bandwidth over TCP";
    if (job->zero_copy && job->protocol != JOB_TCP)
        return "--zero-copy is for TCP";
    if (job->waiting == JOB_SPIN && job->protocol != JOB_TCP)
        return "--waiting spin is for TCP";
    if (job->kernel_poll != JOB_KERNEL_POLL_NONE && job->protocol != JOB_TCP)
        return "--kernel-poll is for TCP";
    if (job->data_port > 65535)
        return "a port is at most 65535";
    return NULL;
}
