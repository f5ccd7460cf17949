/* RDMA-CM across fork: the parent is served while it lives; once it has ended, as with daemon(3),
 * its child listens in its place, with the channel and identifiers that it inherited.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "urxe_test.h"

enum { PATIENCE_S = 60 };

/* A child ends in bounded time as well: the test waits for all that may write. */
static pid_t fork_for_a_while(void)
{
    pid_t child = fork();

    if (child == 0)
        alarm(PATIENCE_S);
    return child;
}

static bool is_readable(struct rdma_event_channel *channel, int timeout_ms)
{
    struct pollfd fd = {.fd = channel->fd, .events = POLLIN};

    return poll(&fd, 1, timeout_ms) == 1;
}

static struct rdma_cm_id *next_event(struct rdma_event_channel *channel,
                                     enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event;
    struct rdma_cm_id *id;

    CHECK_EQ(rdma_get_cm_event(channel, &event), 0);
    if (event->event != type) {
        fprintf(stderr, "%s in place of %s\n", rdma_event_str(event->event), rdma_event_str(type));
        exit(1);
    }
    id = event->id;
    CHECK_EQ(rdma_ack_cm_event(event), 0);
    return id;
}

static struct ibv_qp_init_attr qp_attributes(void)
{
    return (struct ibv_qp_init_attr){
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
    };
}

/* Connects, sends `text`, and waits until the server has ended the connection. The device of a
 * program that has used none. */
static void be_client(int port, const char *text)
{
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_NUMERICHOST},
                         *found;
    struct ibv_qp_init_attr attr = qp_attributes();
    struct rdma_cm_id *id;
    struct ibv_mr *mr;
    struct ibv_wc wc;
    char service[16], *buffer = calloc(1, 64);

    snprintf(service, sizeof(service), "%d", port);
    CHECK_EQ(rdma_getaddrinfo("127.0.0.1", service, &hints, &found), 0);
    CHECK_EQ(rdma_create_ep(&id, found, NULL, &attr), 0);
    while (rdma_connect(id, NULL) != 0) {
        CHECK_EQ(errno, ECONNREFUSED);
        rdma_destroy_ep(id);
        attr = qp_attributes();
        CHECK_EQ(rdma_create_ep(&id, found, NULL, &attr), 0);
    }
    CHECK(mr = rdma_reg_msgs(id, buffer, 64));
    strcpy(buffer, text);
    CHECK_EQ(rdma_post_send(id, NULL, buffer, 64, mr, 0), 0);
    CHECK_EQ(rdma_get_send_comp(id, &wc), 1);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    rdma_disconnect(id);
    exit(0);
}

/* A client that has used no device before. */
static void be_started_client(int port, const char *text)
{
    char service[16];

    snprintf(service, sizeof(service), "%d", port);
    execl("/proc/self/exe", "cm_daemon", "client", service, text, NULL);
    _exit(9);
}

static pid_t start_client(int port, const char *text)
{
    pid_t client = fork_for_a_while();

    CHECK(client >= 0);
    if (client == 0)
        be_started_client(port, text);
    return client;
}

/* Takes a connection that was asked for, and what it sends, which has to be `text`. */
static void serve_request(struct rdma_event_channel *channel, struct rdma_cm_event *asked,
                          const char *text)
{
    struct ibv_qp_init_attr attr = qp_attributes();
    char *buffer = calloc(1, 64);
    struct rdma_cm_id *id = asked->id;
    struct ibv_mr *mr;
    struct ibv_wc wc;

    CHECK_EQ(asked->event, RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK_EQ(rdma_ack_cm_event(asked), 0);
    CHECK_EQ(rdma_create_qp(id, NULL, &attr), 0);
    CHECK(mr = rdma_reg_msgs(id, buffer, 64));
    CHECK_EQ(rdma_post_recv(id, NULL, buffer, 64, mr), 0);
    CHECK_EQ(rdma_accept(id, NULL), 0);
    CHECK(next_event(channel, RDMA_CM_EVENT_ESTABLISHED) == id);
    CHECK_EQ(rdma_get_recv_comp(id, &wc), 1);
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK(!strcmp(buffer, text));
    CHECK(next_event(channel, RDMA_CM_EVENT_DISCONNECTED) == id);
    CHECK_EQ(rdma_dereg_mr(mr), 0);
    rdma_destroy_qp(id);
    CHECK_EQ(rdma_destroy_id(id), 0);
    free(buffer);
}

static void serve(struct rdma_event_channel *channel, const char *text)
{
    struct rdma_cm_event *event;

    CHECK_EQ(rdma_get_cm_event(channel, &event), 0);
    serve_request(channel, event, text);
}

static void expect_success(pid_t child)
{
    int status = -1;

    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
}

struct listener {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    int port;
};

/* At a port that the system chooses, if it is 0. */
static struct listener make_listener_at(in_addr_t address, int port)
{
    struct sockaddr_in any = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(address), .sin_port = htons(port)};
    struct listener made = {.channel = rdma_create_event_channel()};

    CHECK(made.channel);
    CHECK_EQ(rdma_create_id(made.channel, &made.id, NULL, RDMA_PS_TCP), 0);
    CHECK_EQ(rdma_bind_addr(made.id, (struct sockaddr *)&any), 0);
    CHECK_EQ(rdma_listen(made.id, 8), 0);
    made.port = ntohs(rdma_get_src_port(made.id));
    CHECK(made.port);
    return made;
}

static struct listener make_listener(in_addr_t address)
{
    return make_listener_at(address, 0);
}

static void end_listener(struct listener listener)
{
    CHECK_EQ(rdma_destroy_id(listener.id), 0);
    rdma_destroy_event_channel(listener.channel);
}

/* Those that lost their parents are ours, and have ended well. */
static void expect_orphans(int count)
{
    int status = -1;

    for (int i = 0; i < count; i++) {
        CHECK(waitpid(-1, &status, 0) > 0);
        CHECK(WIFEXITED(status));
        CHECK_EQ(WEXITSTATUS(status), 0);
    }
}

/* As daemon(3), once or several times: the parent is gone when the child goes on, or a little
 * later. */
static void check_daemon(in_addr_t address, bool polls, int generations)
{
    pid_t child = fork_for_a_while();
    struct listener listener;

    if (child > 0) {
        expect_success(child);
        expect_orphans(generations);
        return;
    }
    listener = make_listener(address);
    /* One that is served before it is a daemon, or there is no device yet. */
    if (polls) {
        pid_t client = start_client(listener.port, "before");

        serve(listener.channel, "before");
        expect_success(client);
    }
    for (int i = 0; i < generations; i++) {
        pid_t next = fork_for_a_while();

        CHECK(next >= 0);
        if (next > 0)
            _exit(0);
    }
    for (int i = 0; i < 2; i++) {
        pid_t client = start_client(listener.port, "to the daemon");

        if (polls)
            CHECK(is_readable(listener.channel, 60000));
        serve(listener.channel, "to the daemon");
        expect_success(client);
    }
    end_listener(listener);
    exit(0);
}

/* A client that ends its connection at once: what it sent before does not come after its farewell.
 */
static void check_order(void)
{
    struct listener listener = make_listener(INADDR_LOOPBACK);

    for (int i = 0; i < 5; i++) {
        pid_t client = start_client(listener.port, "in order");

        serve(listener.channel, "in order");
        expect_success(client);
    }
    end_listener(listener);
}

/* A request that comes before its listener waits at this process, which has the port of the
 * device. It is one request, though it is repeated: once a repetition has come to a listener, a
 * program that listens there next does not get it as well. */
static void check_late_listener(void)
{
    struct listener listener = make_listener(INADDR_LOOPBACK);
    pid_t client, server;

    end_listener(listener);
    client = start_client(listener.port, "early");
    usleep(100000);
    for (int i = 0; i < 2; i++) {
        if ((server = fork_for_a_while()) == 0) {
            listener = make_listener_at(INADDR_LOOPBACK, listener.port);
            if (i == 0)
                serve(listener.channel, "early");
            else
                CHECK(!is_readable(listener.channel, 1000));
            exit(0);
        }
        expect_success(server);
    }
    expect_success(client);
}

/* While the parent lives it is served, whatever the child does to its copies. */
static void check_parent_is_served(bool child_destroys)
{
    struct listener listener = make_listener(INADDR_LOOPBACK);
    int pipes[2], status;
    pid_t child, client;
    char byte;

    CHECK_EQ(pipe(pipes), 0);
    if ((child = fork_for_a_while()) == 0) {
        struct rdma_cm_id *id;

        close(pipes[1]);
        CHECK_EQ(rdma_create_id(listener.channel, &id, NULL, RDMA_PS_TCP), -1);
        CHECK_EQ(errno, EBADF);
        if (child_destroys) {
            CHECK_EQ(rdma_destroy_id(listener.id), 0);
            rdma_destroy_event_channel(listener.channel);
        }
        CHECK_EQ(read(pipes[0], &byte, 1), 0);
        exit(0);
    }
    close(pipes[0]);
    for (int i = 0; i < 3; i++) {
        client = start_client(listener.port, "to the parent");
        serve(listener.channel, "to the parent");
        expect_success(client);
    }
    end_listener(listener);
    close(pipes[1]);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static volatile pid_t forked = -1;
static pthread_t main_thread;
static struct listener shared;

/* The child has a client of its own, which comes when the parent is gone. */
static void fork_now(int signal)
{
    pid_t parent = getpid();

    (void)signal;
    if (forked >= 0)
        return;
    forked = fork_for_a_while();
    if (forked == 0 && fork_for_a_while() == 0) {
        while (kill(parent, 0) == 0)
            usleep(1000);
        be_started_client(shared.port, "to the child");
    }
}

/* Lets the handler fork while the main thread waits, and then the parent's client begin. */
static void *interrupt_soon(void *pipe)
{
    usleep(100000);
    pthread_kill(main_thread, SIGUSR1);
    while (forked < 0)
        usleep(1000);
    CHECK_EQ(write(*(int *)pipe, "x", 1), 1);
    return NULL;
}

/* A signal handler forks while its thread waits for an event. The parent goes on to be served, and
 * the child, which waits as well, is served once the parent has ended.
 */
static void check_fork_in_handler(void)
{
    struct sigaction action = {.sa_handler = fork_now, .sa_flags = SA_RESTART};
    pid_t parent = fork_for_a_while();
    struct rdma_cm_event *event;
    pthread_t thread;
    int pipes[2];
    pid_t client;
    char byte;

    if (parent > 0) {
        expect_success(parent);
        expect_orphans(1);
        return;
    }
    shared = make_listener(INADDR_LOOPBACK);
    /* The client comes once there was a fork. */
    CHECK_EQ(pipe(pipes), 0);
    if ((client = fork_for_a_while()) == 0) {
        CHECK_EQ(read(pipes[0], &byte, 1), 1);
        expect_success(start_client(shared.port, "after the fork"));
        _exit(0);
    }
    main_thread = pthread_self();
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    CHECK_EQ(pthread_create(&thread, NULL, interrupt_soon, &pipes[1]), 0);
    CHECK_EQ(rdma_get_cm_event(shared.channel, &event), 0);
    CHECK(forked >= 0);
    serve_request(shared.channel, event, forked ? "after the fork" : "to the child");
    if (forked) {
        expect_success(client);
        _exit(0);
    }
    exit(0);
}

/* Each check may take so long, however busy the machine is, and not all of them together. */
#define RUN(check)                                                                                 \
    do {                                                                                           \
        alarm(PATIENCE_S);                                                                         \
        check;                                                                                     \
    } while (0)

int main(int argc, char **argv)
{
    if (argc == 4)
        be_client(atoi(argv[2]), argv[3]);
    CHECK_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    RUN(check_order());
    RUN(check_late_listener());
    RUN(check_daemon(INADDR_LOOPBACK, false, 1));
    RUN(check_daemon(INADDR_LOOPBACK, true, 1));
    /* Often: the one in the middle may take over and end at any time. */
    for (int i = 0; i < 8; i++)
        RUN(check_daemon(INADDR_ANY, i % 2, 2));
    RUN(check_parent_is_served(false));
    RUN(check_parent_is_served(true));
    RUN(check_fork_in_handler());
    return 0;
}
