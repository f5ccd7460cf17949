#include "net/session.h"

#include "net/borrow.h"
#include "net/datagrams.h"
#include "net/link.h"
#include "net/memory.h"
#include "net/pingpong.h"
#include "net/stream.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define LINE_BYTES 512
#define REASON_LIMIT_S 3

/* The control conversation, a line each: job -> , <- "ready PORT", [data], <- "result ..." or
 * "error TEXT". */

static int memory_for(const struct job *job, struct memory *memory, struct failure *failure)
{
    size_t message_bytes = (size_t)job->size_bytes;
    size_t incoming_bytes = DATAGRAMS_INCOMING_BYTES;

    if (job->test == JOB_LATENCY)
        incoming_bytes = message_bytes;
    else if (job->protocol == JOB_TCP)
        incoming_bytes = stream_incoming_bytes(job);
    if (memory_allocate(memory, message_bytes, incoming_bytes) < 0)
        return failure_set(failure, "out of memory for messages of %" PRIu64 " bytes",
                           job->size_bytes);
    return 0;
}

static int run_with(int data, int control, const struct job *job, bool is_client,
                    const struct memory *memory, struct borrow *borrow, struct measurement *result,
                    struct failure *failure)
{
    if (job->test == JOB_LATENCY && is_client)
        return pingpong_client(data, job, memory, borrow, result, failure);
    if (job->test == JOB_LATENCY)
        return pingpong_server(data, job, memory, borrow, result, failure);
    if (job->protocol == JOB_TCP)
        return stream_run(data, job, is_client, memory, borrow, result, failure);
    return datagrams_run(data, control, job, is_client, memory, result, failure);
}

static int run(int data, int control, const struct job *job, bool is_client,
               const struct memory *memory, struct measurement *result, struct failure *failure)
{
    /* Unlike send, splice has no flag for a single call that must not block. */
    bool blocks = job->test == JOB_LATENCY && job->waiting != JOB_BUSY_POLL;
    struct borrow borrow;

    if (!job->zero_copy)
        return run_with(data, control, job, is_client, memory, NULL, result, failure);
    if (borrow_open(&borrow, failure) < 0)
        return -1;
    int status = fcntl(data, F_SETFL, blocks ? 0 : O_NONBLOCK);
    status = status < 0 ? failure_errno(failure, "fcntl")
                        : run_with(data, control, job, is_client, memory, &borrow, result, failure);
    borrow_close(&borrow);
    return status;
}

static int send_result(int control, const struct measurement *result, struct failure *failure)
{
    const struct link_settings *link = &result->link;
    char line[LINE_BYTES];

    snprintf(line, sizeof line,
             "result %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s %d %d %d %d %d %d\n",
             result->elapsed_ns, result->cpu_ns, result->sent_bytes, result->received_bytes,
             link->congestion_control, link->mss_bytes, link->send_buffer_bytes,
             link->receive_buffer_bytes, link->busy_poll_us, link->prefer_busy_poll, link->napi_id);
    return link_write_line(control, line, failure);
}

static int receive_result(int control, struct measurement *result, struct failure *failure)
{
    struct link_settings *link = &result->link;
    char line[LINE_BYTES];

    if (link_read_line(control, line, sizeof line, failure) < 0)
        return -1;
    if (strncmp(line, "error ", 6) == 0)
        return failure_set(failure, "server: %.200s", line + 6);
    /* 15: a name of LINK_NAME_BYTES without its end */
    if (sscanf(line,
               "result %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %15s %d %d %d %d %d %d",
               &result->elapsed_ns, &result->cpu_ns, &result->sent_bytes, &result->received_bytes,
               link->congestion_control, &link->mss_bytes, &link->send_buffer_bytes,
               &link->receive_buffer_bytes, &link->busy_poll_us, &link->prefer_busy_poll,
               &link->napi_id) != 11)
        return failure_set(failure, "the server does not speak our protocol");
    return 0;
}

/*
 * After a failure at this end: the server, which may wait for data, sees that none will come, and
 * this end does not wait for its reason for ever.
 */
static void abandon(int data, int control)
{
    const struct timeval limit = {.tv_sec = REASON_LIMIT_S};

    shutdown(data, SHUT_RDWR);
    shutdown(control, SHUT_WR);
    setsockopt(control, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

/* One end failed first, and the other only saw the connection close: say what both say. */
static void add_server_reason(int control, struct failure *failure)
{
    struct measurement ignored;
    struct failure both;
    struct failure server;

    if (receive_result(control, &ignored, &server) == 0 ||
        strncmp(server.text, "server: ", sizeof "server: " - 1) != 0)
        return;
    failure_set(&both, "%.120s; %.120s", failure->text, server.text);
    *failure = both;
}

/* Opens the data connection and runs the job. The control connection is open, and stays so. */
static int client_on(int control, const char *host, unsigned port, const struct job *job,
                     struct outcome *outcome, struct failure *failure)
{
    struct job sent_job = *job;
    char line[LINE_BYTES];
    struct memory memory = {0};
    int status = -1;
    int data = -1;

    data = job->protocol == JOB_UDP ? link_udp(control, 0, failure)
                                    : link_connect(host, port, failure);
    if (data < 0)
        return -1;
    if (job->protocol == JOB_UDP)
        sent_job.data_port = link_local_port(data);
    else
        link_set_no_delay(data, true);

    if (link_set_kernel_poll(data, job, failure) < 0 || memory_for(job, &memory, failure) < 0)
        goto out;
    job_format(&sent_job, line);
    if (link_write_line(control, line, failure) < 0 ||
        link_read_line(control, line, sizeof line, failure) < 0)
        goto out;
    unsigned server_port = 0;
    if (sscanf(line, "ready %u", &server_port) != 1) {
        failure_set(failure, "server: %.200s", line);
        goto out;
    }
    if (job->protocol == JOB_UDP && link_udp_connect(data, control, server_port, failure) < 0)
        goto out;
    status = run(data, control, job, true, &memory, &outcome->client, failure);
    if (status == 0)
        status = link_settings_of(data, job, &outcome->client.link, failure);
    if (status == 0) {
        status = receive_result(control, &outcome->server, failure);
    } else {
        abandon(data, control);
        add_server_reason(control, failure);
    }
out:
    memory_free(&memory);
    close(data);
    return status;
}

int session_client(const char *host, unsigned port, const struct job *job, struct outcome *outcome,
                   struct failure *failure)
{
    memset(outcome, 0, sizeof *outcome);
    int control = link_connect(host, port, failure);
    if (control < 0)
        return -1;
    link_set_no_delay(control, true);
    if (job->test == JOB_LATENCY) {
        outcome->client.round_trips_ns = calloc(job->messages, sizeof(uint64_t));
        if (outcome->client.round_trips_ns == NULL) {
            close(control);
            return failure_set(failure, "out of memory for %" PRIu64 " timings", job->messages);
        }
        /* calloc gives untouched pages; a fault in the timed region would count as latency */
        memset(outcome->client.round_trips_ns, 1, job->messages * sizeof(uint64_t));
    }
    int status = client_on(control, host, port, job, outcome, failure);
    close(control);
    return status;
}

static int serve(int listener, int control, struct failure *failure)
{
    struct measurement result = {0};
    struct job job;
    char line[LINE_BYTES];
    struct memory memory = {0};
    int status = -1;
    int data = -1;

    if (link_read_line(control, line, sizeof line, failure) < 0)
        return -1;
    if (job_parse(&job, line) < 0)
        return failure_set(
            failure, "the client asked for something unknown; are both ends the same version?");
    data = job.protocol == JOB_UDP ? link_udp(control, 0, failure) : link_accept(listener, failure);
    if (data < 0)
        return -1;
    if (job.protocol == JOB_UDP) {
        if (link_udp_connect(data, control, job.data_port, failure) < 0)
            goto out;
    } else {
        link_set_no_delay(data, true);
    }
    if (link_set_kernel_poll(data, &job, failure) < 0 || memory_for(&job, &memory, failure) < 0)
        goto out;
    snprintf(line, sizeof line, "ready %u\n", link_local_port(data));
    if (link_write_line(control, line, failure) < 0)
        goto out;
    if (run(data, control, &job, false, &memory, &result, failure) < 0 ||
        link_settings_of(data, &job, &result.link, failure) < 0)
        goto out;
    status = send_result(control, &result, failure);
out:
    memory_free(&memory);
    close(data);
    return status;
}

int session_server(unsigned port, struct failure *failure)
{
    char line[LINE_BYTES];
    struct failure ignored;
    int status = -1;
    int listener = link_listen(port, failure);

    if (listener < 0)
        return -1;
    int control = link_accept(listener, failure);
    if (control >= 0) {
        link_set_no_delay(control, true);
        status = serve(listener, control, failure);
        if (status < 0) {
            snprintf(line, sizeof line, "error %s\n", failure->text);
            link_write_line(control, line, &ignored);
        }
        close(control);
    }
    close(listener);
    return status;
}
