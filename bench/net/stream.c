#include "net/stream.h"

#include "common/clock.h"
#include "common/pattern.h"
#include "net/borrow.h"
#include "net/link.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

/* A receiver takes what has come, up to this much, even if messages are smaller: TCP has no
 * messages. */
#define READ_BYTES_MIN (256u * 1024u)

/*
 * One phase at one end. Both ends send their messages, and when an end has sent and received all,
 * one more byte that says so. The phase is over at an end when it has sent its own such byte and
 * got the other's.
 */
struct phase {
    int data;
    struct borrow *borrow; /* NULL: messages are copied */
    bool blocking;         /* sleeps when there is nothing to do */
    bool looks;            /* and a receiver asks for LINK_LOOK_NS before */
    bool no_delay;
    bool check;
    size_t message_bytes;
    uint64_t to_send_bytes;
    uint64_t to_receive_bytes;
    uint64_t sent_bytes;
    uint64_t received_bytes; /* without the last byte */
    bool told;               /* our last byte is sent */
    bool heard;              /* the other's last byte is here */
    const uint8_t *message;
    uint8_t *incoming;
    size_t incoming_bytes;
};

size_t stream_incoming_bytes(const struct job *job)
{
    size_t message_bytes = (size_t)job->size_bytes;

    return message_bytes > READ_BYTES_MIN ? message_bytes : READ_BYTES_MIN;
}

static bool wants_send(const struct phase *phase)
{
    if (phase->sent_bytes < phase->to_send_bytes)
        return true;
    return !phase->told && phase->received_bytes == phase->to_receive_bytes;
}

static bool wants_receive(const struct phase *phase)
{
    if (phase->received_bytes < phase->to_receive_bytes)
        return true;
    /* The other's last byte cannot come before it has our messages. */
    return !phase->heard && phase->sent_bytes == phase->to_send_bytes;
}

static bool would_block(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* Sends what is left of the message under way, or the last byte. Returns bytes sent, 0 if it would
 * block, or -1. */
static ssize_t send_some(struct phase *phase, int flags, struct failure *failure)
{
    static const uint8_t done = 1;
    bool messages_left = phase->sent_bytes < phase->to_send_bytes;
    size_t offset = (size_t)(phase->sent_bytes % phase->message_bytes);
    ssize_t sent;

    if (messages_left && phase->borrow != NULL)
        sent = borrow_send(phase->borrow, phase->data, phase->message + offset,
                           phase->message_bytes - offset, failure);
    else if (messages_left)
        sent = send(phase->data, phase->message + offset, phase->message_bytes - offset, flags);
    else
        sent = send(phase->data, &done, sizeof done, flags);
    if (sent < 0 && phase->borrow != NULL && messages_left)
        return -1;
    if (sent < 0)
        return would_block() ? 0 : failure_errno(failure, "send");
    if (messages_left)
        phase->sent_bytes += (uint64_t)sent;
    else
        phase->told = sent > 0;
    return sent;
}

static int check_content(const struct phase *phase, const uint8_t *came, size_t length_bytes,
                         struct failure *failure)
{
    size_t wrong = pattern_check(came, length_bytes, phase->received_bytes, phase->message_bytes);

    if (wrong < length_bytes)
        return failure_set(failure, "wrong data: byte %llu of the stream",
                           (unsigned long long)(phase->received_bytes + wrong));
    return 0;
}

/* Takes what has come. Returns bytes received, 0 if it would block, or -1. */
static ssize_t receive_some(struct phase *phase, int flags, struct failure *failure)
{
    /* One more for the last byte; never more, or the next phase would lose its beginning. */
    uint64_t due_bytes = phase->to_receive_bytes - phase->received_bytes + 1;
    /* Each byte of a message has one place, as in a program that puts the message together. */
    size_t place = (size_t)(phase->received_bytes % phase->incoming_bytes);
    size_t room = phase->incoming_bytes - place;
    uint8_t *came = phase->incoming + place;
    ssize_t got = recv(phase->data, came, due_bytes < room ? (size_t)due_bytes : room, flags);

    if (got < 0)
        return would_block() ? 0 : failure_errno(failure, "receive");
    if (got == 0)
        return failure_set(failure, "the other end closed the data connection");
    phase->heard = (uint64_t)got == due_bytes;
    size_t length_bytes = (size_t)got - phase->heard;
    if (phase->check && check_content(phase, came, length_bytes, failure) < 0)
        return -1;
    phase->received_bytes += length_bytes;
    return got;
}

static void sleep_until_ready(const struct phase *phase)
{
    struct pollfd ready = {.fd = phase->data};

    ready.events = (short)((wants_send(phase) ? POLLOUT : 0) | (wants_receive(phase) ? POLLIN : 0));
    poll(&ready, 1, -1);
}

static int run_phase(struct phase *phase, struct failure *failure)
{
    struct link_look look = {0};
    bool has_looked = false;

    /* Nagle's algorithm joins small messages, as a stream should unless it is told otherwise; but
     * the end of the stream must not wait. */
    link_set_no_delay(phase->data, phase->no_delay);
    while (!phase->told || !phase->heard) {
        bool sending = wants_send(phase);
        bool receiving = wants_receive(phase);
        bool looking = phase->looks && receiving && !has_looked;
        /* With one thing to do, a blocking end sleeps in the call itself; with two it must not. */
        bool sleeps_in_call =
            phase->blocking && sending != receiving && phase->borrow == NULL && !looking;
        int flags = MSG_NOSIGNAL | (sleeps_in_call ? 0 : MSG_DONTWAIT);
        ssize_t sent = 0;
        ssize_t got = 0;

        if (sending && (sent = send_some(phase, flags, failure)) < 0)
            return -1;
        if (sent > 0 && phase->sent_bytes == phase->to_send_bytes)
            link_set_no_delay(phase->data, true);
        if (receiving && (got = receive_some(phase, flags, failure)) < 0)
            return -1;
        if (sent > 0 || got > 0) {
            look = (struct link_look){0};
            has_looked = false;
        } else if (looking) {
            has_looked = !link_looks_again(&look);
        } else if (phase->blocking) {
            sleep_until_ready(phase);
        }
    }
    return 0;
}

int stream_run(int data, const struct job *job, bool is_client, const struct memory *memory,
               struct borrow *borrow, struct measurement *result, struct failure *failure)
{
    size_t message_bytes = (size_t)job->size_bytes;
    const uint64_t counts[] = {job->warmup_messages, job->messages, JOB_CHECKED_MESSAGES};
    bool sends = is_client || job->test == JOB_BIDIRECTIONAL;
    bool receives = !is_client || job->test == JOB_BIDIRECTIONAL;

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct phase phase = {
            .data = data,
            .borrow = borrow,
            .blocking = job->waiting != JOB_BUSY_POLL,
            .looks = job->waiting == JOB_SPIN,
            .no_delay = job->no_delay,
            .check = i == 2,
            .message_bytes = message_bytes,
            .to_send_bytes = sends ? counts[i] * job->size_bytes : 0,
            .to_receive_bytes = receives ? counts[i] * job->size_bytes : 0,
            .message = memory->outgoing,
            .incoming = memory->incoming,
            .incoming_bytes = memory->incoming_bytes,
        };
        uint64_t start_cpu_ns = clock_cpu_ns();
        uint64_t start_ns = clock_now_ns();

        if (run_phase(&phase, failure) < 0)
            return -1;
        if (i != 1)
            continue;
        result->elapsed_ns = clock_now_ns() - start_ns;
        result->cpu_ns = clock_cpu_ns() - start_cpu_ns;
        result->sent_bytes = phase.sent_bytes;
        result->received_bytes = phase.received_bytes;
    }
    return 0;
}
