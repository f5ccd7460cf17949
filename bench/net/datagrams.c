#include "net/datagrams.h"

#include "common/clock.h"
#include "common/pattern.h"
#include "net/link.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

/* After the other end has said that it is done, datagrams still under way have this long to come.
 */
#define DRAIN_NS (50ull * 1000 * 1000)
#define LINE_BYTES 16
#define DONE_LINE "done\n"

struct flow {
    int data;
    int control;
    bool blocking;
    size_t size_bytes;
    uint64_t to_send;
    uint64_t to_receive;
    uint64_t sent;
    uint64_t received;
    uint64_t last_received_ns;
    uint64_t quiet_since_ns; /* when the other end said that it was done; 0 before */
    const uint8_t *message;
    uint8_t *incoming;
};

static bool is_retry(void)
{
    /* ECONNREFUSED is an earlier datagram that found no socket, ENOBUFS a full device queue: both
     * are loss. */
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ECONNREFUSED ||
           errno == ENOBUFS;
}

static int send_one(struct flow *flow, struct failure *failure)
{
    if (flow->sent == flow->to_send)
        return 0;
    if (send(flow->data, flow->message, flow->size_bytes, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        return is_retry() ? 0 : failure_errno(failure, "send");
    flow->sent++;
    if (flow->sent == flow->to_send && link_write_line(flow->control, DONE_LINE, failure) < 0)
        return -1;
    return 1;
}

static int receive_one(struct flow *flow, struct failure *failure)
{
    ssize_t got = recv(flow->data, flow->incoming, flow->size_bytes, MSG_DONTWAIT | MSG_TRUNC);

    if (got < 0)
        return is_retry() ? 0 : failure_errno(failure, "receive");
    if ((size_t)got != flow->size_bytes)
        return failure_set(failure, "a datagram of %zd bytes came instead of one of %zu", got,
                           flow->size_bytes);
    flow->received++;
    flow->last_received_ns = clock_now_ns();
    return 1;
}

/* Notes that the other end is done, once it says so. */
static int listen_to_control(struct flow *flow, struct failure *failure)
{
    struct pollfd ready = {.fd = flow->control, .events = POLLIN};
    char line[LINE_BYTES];

    if (flow->quiet_since_ns != 0 || poll(&ready, 1, 0) <= 0)
        return 0;
    if (link_read_line(flow->control, line, sizeof line, failure) < 0)
        return -1;
    flow->quiet_since_ns = clock_now_ns();
    return 0;
}

static bool is_over(const struct flow *flow)
{
    if (flow->sent < flow->to_send)
        return false;
    if (flow->to_receive == 0)
        return true;
    if (flow->quiet_since_ns == 0)
        return false;
    if (flow->received == flow->to_receive)
        return true;
    uint64_t last_ns = flow->quiet_since_ns > flow->last_received_ns ? flow->quiet_since_ns
                                                                     : flow->last_received_ns;
    return clock_now_ns() - last_ns > DRAIN_NS;
}

static void sleep_until_ready(const struct flow *flow)
{
    struct pollfd ready[] = {
        {.fd = flow->data, .events = (short)(POLLIN | (flow->sent < flow->to_send ? POLLOUT : 0))},
        {.fd = flow->quiet_since_ns == 0 ? flow->control : -1, .events = POLLIN},
    };

    poll(ready, 2, (int)(DRAIN_NS / 1000000));
}

static int run_flow(struct flow *flow, struct failure *failure)
{
    while (!is_over(flow)) {
        int sent = send_one(flow, failure);
        int got = flow->to_receive > 0 ? receive_one(flow, failure) : 0;

        if (sent < 0 || got < 0)
            return -1;
        if (sent > 0 || got > 0)
            continue;
        if (flow->to_receive > 0 && listen_to_control(flow, failure) < 0)
            return -1;
        if (flow->blocking && !is_over(flow))
            sleep_until_ready(flow);
    }
    return 0;
}

/* Both ends have ended the phase: nothing of it can come any more. */
static int meet(int control, struct failure *failure)
{
    char line[LINE_BYTES];

    if (link_write_line(control, "next\n", failure) < 0)
        return -1;
    return link_read_line(control, line, sizeof line, failure);
}

int datagrams_run(int data, int control, const struct job *job, bool is_client,
                  const struct memory *memory, struct measurement *result, struct failure *failure)
{
    bool sends = is_client || job->test == JOB_BIDIRECTIONAL;
    bool receives = !is_client || job->test == JOB_BIDIRECTIONAL;
    const uint64_t counts[] = {job->warmup_messages, job->messages};
    struct flow flow = {0};

    for (size_t i = 0; i < 2; i++) {
        if (counts[i] == 0)
            continue;
        flow = (struct flow){
            .data = data,
            .control = control,
            .blocking = job->waiting == JOB_BLOCKING,
            .size_bytes = (size_t)job->size_bytes,
            .to_send = sends ? counts[i] : 0,
            .to_receive = receives ? counts[i] : 0,
            .message = memory->outgoing,
            .incoming = memory->incoming,
        };
        uint64_t start_cpu_ns = clock_cpu_ns();
        uint64_t start_ns = clock_now_ns();

        if (run_flow(&flow, failure) < 0)
            return -1;
        uint64_t end_ns = flow.received > 0 ? flow.last_received_ns : clock_now_ns();
        result->elapsed_ns = end_ns - start_ns;
        result->cpu_ns = clock_cpu_ns() - start_cpu_ns;
        if (meet(control, failure) < 0)
            return -1;
    }
    result->sent_bytes = flow.sent * job->size_bytes;
    result->received_bytes = flow.received * job->size_bytes;
    if (flow.received > 0 &&
        pattern_check(flow.incoming, flow.size_bytes, 0, flow.size_bytes) < flow.size_bytes)
        return failure_set(failure, "wrong data in the last datagram");
    return 0;
}
