/* RDMA-CM follows the network interfaces: what a listener on all addresses, a connection and its
 * two ends learn of devices and addresses that come and go. Run in a network namespace of its own.
 */
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/wait.h>
#include <unistd.h>

#include "urxe_test.h"

enum { PORT = 7471 };

static void run(const char *command)
{
    CHECK_EQ(system(command), 0);
}

static void add_interface(const char *address)
{
    char command[200];

    snprintf(command, sizeof(command),
             "ip link add left type veth peer name right && ip address add %s/24 dev left && "
             "ip link set left up && ip link set right up",
             address);
    run(command);
}

static bool is_readable(struct rdma_event_channel *channel, int timeout_ms)
{
    struct pollfd fd = {.fd = channel->fd, .events = POLLIN};

    return poll(&fd, 1, timeout_ms) == 1;
}

/* The next event of a channel, of this kind; its identifier. */
static struct rdma_cm_id *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event;
    struct rdma_cm_id *id;

    CHECK(is_readable(channel, 60000));
    CHECK_EQ(rdma_get_cm_event(channel, &event), 0);
    if (event->event != type) {
        fprintf(stderr, "%s in place of %s\n", rdma_event_str(event->event), rdma_event_str(type));
        exit(1);
    }
    CHECK_EQ(event->status, 0);
    id = event->id;
    CHECK_EQ(rdma_ack_cm_event(event), 0);
    return id;
}

/* Connects from `client` to `address`, whose listener's channel is `server`. The device may take a
 * moment to be listened on, but asking again is the protocol's affair. */
static void make_connection(const char *address, struct rdma_event_channel *client,
                            struct rdma_event_channel *server, struct rdma_cm_id *ends[2])
{
    struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1, .qp_num = 99};
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_NUMERICHOST},
                         *found;
    char port[16];

    snprintf(port, sizeof(port), "%d", PORT);
    CHECK_EQ(rdma_getaddrinfo(address, port, &hints, &found), 0);
    CHECK_EQ(rdma_create_id(client, &ends[0], NULL, RDMA_PS_TCP), 0);
    CHECK_EQ(rdma_resolve_addr(ends[0], NULL, found->ai_dst_addr, 2000), 0);
    rdma_freeaddrinfo(found);
    expect(client, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK_EQ(rdma_resolve_route(ends[0], 2000), 0);
    expect(client, RDMA_CM_EVENT_ROUTE_RESOLVED);
    CHECK_EQ(rdma_connect(ends[0], &param), 0);
    ends[1] = expect(server, RDMA_CM_EVENT_CONNECT_REQUEST);
    param.qp_num = 98;
    CHECK_EQ(rdma_accept(ends[1], &param), 0);
    expect(client, RDMA_CM_EVENT_CONNECT_RESPONSE);
    CHECK_EQ(rdma_establish(ends[0]), 0);
    expect(server, RDMA_CM_EVENT_ESTABLISHED);
}

/* Both ends of a connection learn something, the listener nothing. */
static void both_learn(struct rdma_event_channel *client, struct rdma_event_channel *server,
                       struct rdma_cm_id *ends[2], enum rdma_cm_event_type type)
{
    CHECK(expect(client, type) == ends[0]);
    CHECK(expect(server, type) == ends[1]);
    CHECK(!is_readable(client, 100) && !is_readable(server, 0));
}

/* A child that was forked and ends takes nothing along. */
static void fork_meanwhile(void)
{
    pid_t child = fork();
    int status = -1;

    if (child == 0)
        exit(0);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    struct rdma_event_channel *client = rdma_create_event_channel(),
                              *server = rdma_create_event_channel();
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    struct rdma_cm_id *listener, *ends[2];

    CHECK(client && server);
    CHECK_EQ(rdma_create_id(server, &listener, NULL, RDMA_PS_TCP), 0);
    CHECK_EQ(rdma_bind_addr(listener, (struct sockaddr *)&any), 0);
    CHECK_EQ(rdma_listen(listener, 8), 0);
    /* A device that appears now is listened on, too. */
    add_interface("192.0.2.1");
    make_connection("192.0.2.1", client, server, ends);
    fork_meanwhile();
    CHECK(!is_readable(client, 100) && !is_readable(server, 0));
    /* Another hardware address. */
    run("ip link set left address 02:00:00:00:00:77");
    both_learn(client, server, ends, RDMA_CM_EVENT_ADDR_CHANGE);
    /* An address that is no host's in particular, then that of the connection. */
    run("ip address add 192.0.2.9/24 dev left");
    run("ip address del 192.0.2.9/24 dev left");
    CHECK(!is_readable(client, 200) && !is_readable(server, 0));
    run("ip address del 192.0.2.1/24 dev left");
    both_learn(client, server, ends, RDMA_CM_EVENT_ADDR_CHANGE);
    run("ip address add 192.0.2.1/24 dev left");
    CHECK(!is_readable(client, 200) && !is_readable(server, 0));
    run("ip address del 192.0.2.1/24 dev left");
    both_learn(client, server, ends, RDMA_CM_EVENT_ADDR_CHANGE);
    run("ip link delete left");
    both_learn(client, server, ends, RDMA_CM_EVENT_DEVICE_REMOVAL);
    /* What is left to do with them is to end them. */
    CHECK(rdma_disconnect(ends[1]) && errno == EINVAL);
    CHECK_EQ(rdma_destroy_id(ends[0]), 0);
    CHECK_EQ(rdma_destroy_id(ends[1]), 0);
    /* The listener goes on, on whatever comes. */
    add_interface("192.0.2.5");
    make_connection("192.0.2.5", client, server, ends);
    CHECK_EQ(rdma_disconnect(ends[0]), 0);
    CHECK(expect(server, RDMA_CM_EVENT_DISCONNECTED) == ends[1]);
    CHECK_EQ(rdma_destroy_id(ends[0]), 0);
    CHECK_EQ(rdma_destroy_id(ends[1]), 0);
    CHECK_EQ(rdma_destroy_id(listener), 0);
    rdma_destroy_event_channel(client);
    rdma_destroy_event_channel(server);
    return 0;
}
