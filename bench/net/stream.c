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

/* What is to be moved while a phase goes on for some seconds: more than there is. */
#define UNKNOWN_BYTES (UINT64_MAX / 2)

#define NS_PER_S 1000000000ull

/* A sender of small messages reads the clock no more often than this, as that costs as much as a
 * part of a call. */
#define CLOCK_BYTES 4096u

/* What of a phase is measured: from one moment to another, at this end. */
struct window {
    uint64_t opens_ns;
    uint64_t closes_ns;
    uint64_t ends_ns; /* of the phase, for a sender */
    struct moment {
        uint64_t at_ns; /* 0: not yet */
        uint64_t cpu_ns;
        uint64_t moved_bytes;
    } opened, closed;
};

/*
 * One phase at one end. Both ends send their messages, and when an end has sent and received all,
 * one more byte that says so. The phase is over at an end when it has sent its own such byte and
 * got the other's. A phase for some seconds is one way: its sender closes its half of the
 * connection in place of such a byte, as its receiver does not know how much will come.
 */
struct phase {
    int data;
    struct borrow *borrow; /* NULL: messages are copied */
    bool blocking;         /* sleeps when there is nothing to do */
    bool looks;            /* and a receiver asks for LINK_LOOK_NS before */
    bool no_delay;
    bool check;
    struct window *window;   /* NULL: a number of messages */
    uint64_t clock_at_bytes; /* a sender with a window looks at the clock again from here on */
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
    else if (phase->window != NULL && phase->to_receive_bytes == 0)
        sent = shutdown(phase->data, SHUT_WR) < 0 ? -1 : 1;
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

/* The sender has closed its half. */
static ssize_t end_of_unknown(struct phase *phase, struct failure *failure)
{
    if (phase->received_bytes % phase->message_bytes != 0)
        return failure_set(failure, "the other end closed the connection within a message");
    phase->to_receive_bytes = phase->received_bytes;
    phase->heard = true;
    return 1;
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
    if (got == 0 && phase->window != NULL && phase->to_receive_bytes == UNKNOWN_BYTES)
        return end_of_unknown(phase, failure);
    if (got == 0)
        return failure_set(failure, "the other end closed the data connection");
    phase->heard = (uint64_t)got == due_bytes;
    size_t length_bytes = (size_t)got - phase->heard;
    if (phase->check && check_content(phase, came, length_bytes, failure) < 0)
        return -1;
    phase->received_bytes += length_bytes;
    return got;
}

static void note_moment(struct moment *moment, uint64_t now_ns, uint64_t moved_bytes)
{
    *moment = (struct moment){now_ns, clock_cpu_ns(), moved_bytes};
}

/* After something moved: whether the window has opened or closed, and the phase ended. */
static void look_at_clock(struct phase *phase)
{
    struct window *window = phase->window;
    bool sends = phase->to_send_bytes != 0;
    uint64_t moved_bytes = sends ? phase->sent_bytes : phase->received_bytes;

    if (sends && phase->sent_bytes < phase->clock_at_bytes)
        return;
    uint64_t now_ns = clock_now_ns();
    phase->clock_at_bytes = phase->sent_bytes + CLOCK_BYTES;
    if (window->opened.at_ns == 0 && now_ns >= window->opens_ns)
        note_moment(&window->opened, now_ns, moved_bytes);
    else if (window->opened.at_ns != 0 && window->closed.at_ns == 0 && now_ns >= window->closes_ns)
        note_moment(&window->closed, now_ns, moved_bytes);
    /* Not within a message. */
    if (sends && now_ns >= window->ends_ns) {
        uint64_t begun_bytes = phase->sent_bytes % phase->message_bytes;
        phase->to_send_bytes =
            phase->sent_bytes + (begun_bytes == 0 ? 0 : phase->message_bytes - begun_bytes);
        phase->clock_at_bytes = UINT64_MAX;
    }
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
        if (phase->window != NULL && (sent > 0 || got > 0))
            look_at_clock(phase);
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

/* All of a phase at this end but what it moves. */
static struct phase phase_of(int data, const struct job *job, const struct memory *memory,
                             struct borrow *borrow)
{
    return (struct phase){
        .data = data,
        .borrow = borrow,
        .blocking = job->waiting != JOB_BUSY_POLL,
        .looks = job->waiting == JOB_SPIN,
        .no_delay = job->no_delay,
        .message_bytes = (size_t)job->size_bytes,
        .message = memory->outgoing,
        .incoming = memory->incoming,
        .incoming_bytes = memory->incoming_bytes,
    };
}

/* A phase for some seconds, from the client to the server. */
static int run_seconds(struct phase phase, const struct job *job, bool is_client,
                       struct measurement *result, struct failure *failure)
{
    uint64_t start_ns = clock_now_ns();
    struct window window = {
        .opens_ns = start_ns + job->margin_s * NS_PER_S,
        .closes_ns = start_ns + (job->margin_s + job->seconds) * NS_PER_S,
        .ends_ns = start_ns + (2 * job->margin_s + job->seconds) * NS_PER_S,
    };

    phase.window = &window;
    phase.to_send_bytes = is_client ? UNKNOWN_BYTES : 0;
    phase.to_receive_bytes = is_client ? 0 : UNKNOWN_BYTES;
    if (run_phase(&phase, failure) < 0)
        return -1;
    if (window.closed.at_ns == 0)
        return failure_set(failure, "nothing moved in the last seconds of the stream");
    uint64_t moved_bytes = window.closed.moved_bytes - window.opened.moved_bytes;
    result->elapsed_ns = window.closed.at_ns - window.opened.at_ns;
    result->cpu_ns = window.closed.cpu_ns - window.opened.cpu_ns;
    *(is_client ? &result->sent_bytes : &result->received_bytes) = moved_bytes;
    return 0;
}

int stream_run(int data, const struct job *job, bool is_client, const struct memory *memory,
               struct borrow *borrow, struct measurement *result, struct failure *failure)
{
    /* What goes on for some seconds ends the connection, and comes last. */
    uint64_t timed_messages = job->seconds > 0 ? 0 : job->messages;
    const uint64_t counts[] = {job->warmup_messages, timed_messages, JOB_CHECKED_MESSAGES};
    bool sends = is_client || job->test == JOB_BIDIRECTIONAL;
    bool receives = !is_client || job->test == JOB_BIDIRECTIONAL;

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct phase phase = phase_of(data, job, memory, borrow);
        phase.check = i == 2;
        phase.to_send_bytes = sends ? counts[i] * job->size_bytes : 0;
        phase.to_receive_bytes = receives ? counts[i] * job->size_bytes : 0;
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
    if (job->seconds == 0)
        return 0;
    return run_seconds(phase_of(data, job, memory, borrow), job, is_client, result, failure);
}
