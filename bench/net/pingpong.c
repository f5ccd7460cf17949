#include "net/pingpong.h"

#include "common/clock.h"
#include "common/pattern.h"
#include "net/link.h"

#include <string.h>

static int send_message(int data, const struct job *job, struct borrow *borrow,
                        const uint8_t *message, struct failure *failure)
{
    size_t left = (size_t)job->size_bytes;

    if (borrow == NULL)
        return link_send(data, job, message, failure);
    while (left > 0) {
        ssize_t sent = borrow_send(borrow, data, message, left, failure);
        if (sent < 0)
            return -1;
        message += sent;
        left -= (size_t)sent;
    }
    return 0;
}

static int exchange(int data, const struct job *job, struct borrow *borrow, const uint8_t *out,
                    uint8_t *in, struct failure *failure)
{
    if (send_message(data, job, borrow, out, failure) < 0)
        return -1;
    return link_receive(data, job, in, failure);
}

static int compare(const struct job *job, const uint8_t *message, struct failure *failure)
{
    size_t size_bytes = (size_t)job->size_bytes;
    size_t wrong = pattern_check(message, size_bytes, 0, size_bytes);

    if (wrong < size_bytes)
        return failure_set(failure, "wrong data: byte %zu of a message of %zu", wrong, size_bytes);
    return 0;
}

int pingpong_client(int data, const struct job *job, const struct memory *memory,
                    struct borrow *borrow, struct measurement *result, struct failure *failure)
{
    const uint8_t *out = memory->outgoing;
    uint8_t *in = memory->incoming;

    for (uint64_t i = 0; i < job->warmup_messages; i++)
        if (exchange(data, job, borrow, out, in, failure) < 0)
            return -1;

    uint64_t start_cpu_ns = clock_cpu_ns();
    uint64_t start_ns = clock_now_ns();
    uint64_t before_ns = start_ns;
    for (uint64_t i = 0; i < job->messages; i++) {
        if (exchange(data, job, borrow, out, in, failure) < 0)
            return -1;
        uint64_t now_ns = clock_now_ns();
        result->round_trips_ns[i] = now_ns - before_ns;
        before_ns = now_ns;
    }
    result->elapsed_ns = before_ns - start_ns;
    result->cpu_ns = clock_cpu_ns() - start_cpu_ns;
    result->sent_bytes = result->received_bytes = job->messages * job->size_bytes;

    for (uint64_t i = 0; i < JOB_CHECKED_MESSAGES; i++) {
        memset(in, 0, (size_t)job->size_bytes);
        if (exchange(data, job, borrow, out, in, failure) < 0 || compare(job, in, failure) < 0)
            return -1;
    }
    return 0;
}

/* The other side of `count` exchanges. */
static int echo(int data, const struct job *job, struct borrow *borrow, uint64_t count,
                uint8_t *message, struct failure *failure)
{
    for (uint64_t i = 0; i < count; i++) {
        if (link_receive(data, job, message, failure) < 0)
            return -1;
        if (send_message(data, job, borrow, message, failure) < 0)
            return -1;
    }
    return 0;
}

int pingpong_server(int data, const struct job *job, const struct memory *memory,
                    struct borrow *borrow, struct measurement *result, struct failure *failure)
{
    if (echo(data, job, borrow, job->warmup_messages, memory->incoming, failure) < 0)
        return -1;

    uint64_t start_cpu_ns = clock_cpu_ns();
    uint64_t start_ns = clock_now_ns();
    if (echo(data, job, borrow, job->messages, memory->incoming, failure) < 0)
        return -1;
    result->elapsed_ns = clock_now_ns() - start_ns;
    result->cpu_ns = clock_cpu_ns() - start_cpu_ns;
    result->sent_bytes = result->received_bytes = job->messages * job->size_bytes;

    /* What comes back is what arrived, not what we knew: the client then checks both directions. */
    return echo(data, job, borrow, JOB_CHECKED_MESSAGES, memory->incoming, failure);
}
