#include "net/link.h"

#include "common/clock.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define UDP_LOST_AFTER_S 1
#define NS_PER_S 1000000000ull
/* A spinning end looks at the clock only now and then: it costs about as much as the call that
 * found nothing. */
#define SPINS_BETWEEN_CLOCK_READS 1024u
/* The same where 100 us count. */
#define LOOKS_BETWEEN_CLOCK_READS 16u

int link_listen(unsigned port, struct failure *failure)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    int listener = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (listener < 0)
        return failure_errno(failure, "socket");
    address.sin6_port = htons((uint16_t)port);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int));
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 ||
        listen(listener, 8) < 0) {
        failure_set(failure, "cannot listen on port %u: %s", port, strerror(errno));
        close(listener);
        return -1;
    }
    return listener;
}

int link_accept(int listener, struct failure *failure)
{
    int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

    return connection < 0 ? failure_errno(failure, "accept") : connection;
}

int link_connect(const char *host, unsigned port, struct failure *failure)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char service[8];
    int connection = -1;

    snprintf(service, sizeof service, "%u", port);
    int error = getaddrinfo(host, service, &hints, &found);
    if (error != 0)
        return failure_set(failure, "%s: %s", host, gai_strerror(error));
    for (struct addrinfo *at = found; at != NULL; at = at->ai_next) {
        connection = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
        if (connection >= 0 && connect(connection, at->ai_addr, at->ai_addrlen) == 0)
            break;
        failure_set(failure, "cannot connect to %s port %u: %s", host, port, strerror(errno));
        if (connection >= 0)
            close(connection);
        connection = -1;
    }
    freeaddrinfo(found);
    return connection;
}

static void set_port(struct sockaddr_storage *address, unsigned port)
{
    if (address->ss_family == AF_INET6)
        ((struct sockaddr_in6 *)address)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)address)->sin_port = htons((uint16_t)port);
}

int link_udp(int control, unsigned local_port, struct failure *failure)
{
    struct sockaddr_storage local;
    socklen_t length = sizeof local;

    if (getsockname(control, (struct sockaddr *)&local, &length) < 0)
        return failure_errno(failure, "getsockname");
    int data = socket(local.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (data < 0)
        return failure_errno(failure, "socket");
    set_port(&local, local_port);
    setsockopt(data, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = UDP_LOST_AFTER_S},
               sizeof(struct timeval));
    if (bind(data, (struct sockaddr *)&local, length) < 0) {
        failure_errno(failure, "bind (UDP)");
        close(data);
        return -1;
    }
    return data;
}

int link_udp_connect(int data, int control, unsigned peer_port, struct failure *failure)
{
    struct sockaddr_storage peer;
    socklen_t length = sizeof peer;

    if (getpeername(control, (struct sockaddr *)&peer, &length) < 0)
        return failure_errno(failure, "getpeername");
    set_port(&peer, peer_port);
    if (connect(data, (struct sockaddr *)&peer, length) < 0)
        return failure_errno(failure, "connect (UDP)");
    return 0;
}

unsigned link_local_port(int socket)
{
    struct sockaddr_storage local;
    socklen_t length = sizeof local;

    if (getsockname(socket, (struct sockaddr *)&local, &length) < 0)
        return 0;
    if (local.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)&local)->sin6_port);
    return ntohs(((struct sockaddr_in *)&local)->sin_port);
}

int link_set_no_delay(int socket, bool no_delay)
{
    return setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &(int){no_delay}, sizeof(int));
}

static int set_kernel_poll(int data, int option, const char *name, int value,
                           struct failure *failure)
{
    if (setsockopt(data, SOL_SOCKET, option, &value, sizeof value) == 0)
        return 0;
    return failure_set(failure, "%s cannot be set to %d: %s%s", name, value, strerror(errno),
                       errno == EPERM ? "; it needs CAP_NET_ADMIN outside of any user namespace"
                                      : "");
}

int link_set_kernel_poll(int data, const struct job *job, struct failure *failure)
{
    if (job->kernel_poll == JOB_KERNEL_POLL_NONE)
        return 0;
    if (set_kernel_poll(data, SO_BUSY_POLL, "SO_BUSY_POLL", LINK_BUSY_POLL_US, failure) < 0)
        return -1;
    if (job->kernel_poll == JOB_KERNEL_POLL)
        return 0;
    if (set_kernel_poll(data, SO_PREFER_BUSY_POLL, "SO_PREFER_BUSY_POLL", 1, failure) < 0)
        return -1;
    return set_kernel_poll(data, SO_BUSY_POLL_BUDGET, "SO_BUSY_POLL_BUDGET", LINK_BUSY_POLL_BUDGET,
                           failure);
}

/* 0 where the kernel has no such option. */
static int number_of(int data, int option)
{
    int value = 0;
    socklen_t length = sizeof value;

    return getsockopt(data, SOL_SOCKET, option, &value, &length) < 0 ? 0 : value;
}

int link_settings_of(int data, const struct job *job, struct link_settings *settings,
                     struct failure *failure)
{
    *settings = (struct link_settings){.congestion_control = LINK_NO_CONGESTION_CONTROL};
    socklen_t int_length = sizeof(int);
    socklen_t name_length = sizeof settings->congestion_control;

    if (getsockopt(data, SOL_SOCKET, SO_SNDBUF, &settings->send_buffer_bytes, &int_length) < 0)
        return failure_errno(failure, "SO_SNDBUF");
    if (getsockopt(data, SOL_SOCKET, SO_RCVBUF, &settings->receive_buffer_bytes, &int_length) < 0)
        return failure_errno(failure, "SO_RCVBUF");
    if (job->protocol == JOB_UDP)
        return 0;
    settings->busy_poll_us = number_of(data, SO_BUSY_POLL);
    settings->prefer_busy_poll = number_of(data, SO_PREFER_BUSY_POLL) != 0;
    settings->napi_id = number_of(data, SO_INCOMING_NAPI_ID);
    if (getsockopt(data, IPPROTO_TCP, TCP_MAXSEG, &settings->mss_bytes, &int_length) < 0)
        return failure_errno(failure, "TCP_MAXSEG");
    if (getsockopt(data, IPPROTO_TCP, TCP_CONGESTION, settings->congestion_control, &name_length) <
        0)
        return failure_errno(failure, "TCP_CONGESTION");
    settings->congestion_control[LINK_NAME_BYTES - 1] = '\0';
    return 0;
}

int link_write_line(int control, const char *line, struct failure *failure)
{
    size_t length = strlen(line);

    while (length > 0) {
        ssize_t sent = send(control, line, length, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR)
            return failure_errno(failure, "control connection");
        if (sent > 0) {
            line += sent;
            length -= (size_t)sent;
        }
    }
    return 0;
}

int link_read_line(int control, char *line, size_t line_bytes, struct failure *failure)
{
    for (size_t at = 0; at + 1 < line_bytes; at++) {
        ssize_t got = recv(control, line + at, 1, MSG_WAITALL);
        if (got < 0)
            return failure_errno(failure, "control connection");
        if (got == 0)
            return failure_set(failure, "the other end closed the control connection");
        if (line[at] == '\n') {
            line[at] = '\0';
            return 0;
        }
    }
    return failure_set(failure, "the other end does not speak our protocol");
}

static int flags_of(const struct job *job)
{
    return MSG_NOSIGNAL | (job->waiting == JOB_BUSY_POLL ? MSG_DONTWAIT : 0);
}

static bool is_retry(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

int link_send(int data, const struct job *job, const uint8_t *message, struct failure *failure)
{
    size_t left = (size_t)job->size_bytes;

    while (left > 0) {
        ssize_t sent = send(data, message, left, flags_of(job));
        if (sent >= 0) {
            message += sent;
            left -= (size_t)sent;
        } else if (!is_retry(errno)) {
            return failure_errno(failure, "send");
        }
    }
    return 0;
}

/* True when a UDP receiver has waited long enough; `spins` and `since_ns` are its own memory. */
static bool is_lost(const struct job *job, unsigned *spins, uint64_t *since_ns)
{
    if (job->protocol != JOB_UDP)
        return false;
    if (job->waiting == JOB_BLOCKING) /* SO_RCVTIMEO has run out, or a signal came */
        return errno != EINTR;
    if (++*spins % SPINS_BETWEEN_CLOCK_READS != 0)
        return false;
    if (*since_ns == 0)
        *since_ns = clock_now_ns();
    return clock_now_ns() - *since_ns > UDP_LOST_AFTER_S * NS_PER_S;
}

bool link_looks_again(struct link_look *look)
{
    if (look->until_ns == 0)
        look->until_ns = clock_now_ns() + LINK_LOOK_NS;
    return ++look->count % LOOKS_BETWEEN_CLOCK_READS != 0 || clock_now_ns() < look->until_ns;
}

int link_receive(int data, const struct job *job, uint8_t *message, struct failure *failure)
{
    size_t left = (size_t)job->size_bytes;
    unsigned spins = 0;
    uint64_t since_ns = 0;
    struct link_look look = {0};
    bool sleeps = job->waiting == JOB_BLOCKING;

    while (left > 0) {
        ssize_t got = recv(data, message, left, sleeps ? 0 : MSG_DONTWAIT);
        if (got > 0) {
            message += got;
            left -= (size_t)got;
            if (job->waiting == JOB_SPIN) {
                look = (struct link_look){0};
                sleeps = false;
            }
        } else if (got == 0) {
            return failure_set(failure, "the other end closed the data connection");
        } else if (!is_retry(errno)) {
            return failure_errno(failure, "receive");
        } else if (job->waiting == JOB_SPIN) {
            sleeps = sleeps || !link_looks_again(&look);
        } else if (is_lost(job, &spins, &since_ns)) {
            return failure_set(failure, "a datagram did not come within %d s: it was lost",
                               UDP_LOST_AFTER_S);
        }
    }
    return 0;
}
