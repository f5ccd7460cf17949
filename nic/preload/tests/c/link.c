/* The GID table and the port follow the network interface, with events; run with two interfaces of
 * its own, left and right, joined to each other, of which left has 192.0.2.1. */
#include <poll.h>

#include "urxe_test.h"

static struct ibv_context *open_device(const char *name)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = NULL;

    for (int i = 0; list[i]; i++)
        if (!strcmp(ibv_get_device_name(list[i]), name))
            CHECK((context = ibv_open_device(list[i])) != NULL);
    ibv_free_device_list(list);
    CHECK(context);
    return context;
}

static void run(const char *command)
{
    CHECK_EQ(system(command), 0);
}

static void expect(struct ibv_context *context, enum ibv_event_type type)
{
    struct pollfd fd = {.fd = context->async_fd, .events = POLLIN};
    struct ibv_async_event event;

    do { /* other events may come first: IPv6 addresses appear by themselves */
        CHECK_EQ(poll(&fd, 1, 60000), 1);
        CHECK_EQ(ibv_get_async_event(context, &event), 0);
        ibv_ack_async_event(&event);
    } while (event.event_type == IBV_EVENT_GID_CHANGE && type != IBV_EVENT_GID_CHANGE);
    CHECK_EQ(event.event_type, type);
    if (type != IBV_EVENT_DEVICE_FATAL)
        CHECK_EQ(event.element.port_num, 1);
}

/* The last byte of the IPv4 address at an index, 0 for an empty entry. */
static int address_at(struct ibv_context *context, int index)
{
    union ibv_gid gid;

    CHECK_EQ(ibv_query_gid(context, 1, index, &gid), 0);
    return gid.raw[15];
}

/* The same once it is what it is to become: an event may have been about another address. */
static int settled_at(struct ibv_context *context, int index, int wanted)
{
    for (int tries = 0; tries < 500 && address_at(context, index) != wanted; tries++)
        poll(NULL, 0, 10);
    return address_at(context, index);
}

static enum ibv_port_state port_state(struct ibv_context *context)
{
    struct ibv_port_attr port;

    CHECK_EQ(ibv_query_port(context, 1, &port), 0);
    /* A lane of 25 Gbps (EDR): a veth pair has no wire, whatever speed it tells. */
    CHECK_EQ(port.active_width, 1);
    CHECK_EQ(port.active_speed, 32);
    return port.state;
}

/* Sends one message from a queue pair to itself, by the address at an index. */
static void send_by(struct ibv_context *context, int index)
{
    struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 64}, .qp_type = IBV_QPT_RC};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    struct pair_options options = {0};
    struct ibv_recv_wr receive = {.wr_id = 1}, *bad_receive;
    struct ibv_send_wr send = {.wr_id = 2, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED},
                       *bad_send;
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .max_dest_rd_atomic = 1,
        .rq_psn = 0xfffff0,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = index, .hop_limit = 9}},
    };

    CHECK(qp);
    CHECK_EQ(ibv_query_gid(context, 1, index, &attr.ah_attr.grh.dgid), 0);
    attr.dest_qp_num = qp->qp_num;
    to_init(qp, &options);
    CHECK_EQ(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                               IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
             0);
    to_ready_to_send(qp, &options);
    CHECK_EQ(ibv_post_recv(qp, &receive, &bad_receive), 0);
    CHECK_EQ(ibv_post_send(qp, &send, &bad_send), 0);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(next_completion(cq, NULL).status, IBV_WC_SUCCESS);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_destroy_cq(cq), 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
}

int main(void)
{
    struct ibv_context *context = open_device("urxe_left");
    struct ibv_gid_entry table[64];
    const char *gid = "/sys/class/infiniband/urxe_left/ports/1/gids/2";
    char text[64], second[64];
    FILE *file;

    /* Without a thread that watches, a query looks for itself. */
    CHECK_EQ(address_at(context, 0), 1);
    run("ip address add 192.0.2.2/24 dev left");
    CHECK_EQ(address_at(context, 1), 2);
    send_by(context, 1);
    run("ip address add 192.0.2.3/24 dev left");
    expect(context, IBV_EVENT_GID_CHANGE);
    send_by(context, 2);
    CHECK_EQ(ibv_query_gid_table(context, table, 64, 0), 3);
    CHECK((file = fopen(gid, "r")) && fgets(text, sizeof(text), file));
    fclose(file);
    run("ip address del 192.0.2.2/24 dev left");
    expect(context, IBV_EVENT_GID_CHANGE);
    CHECK_EQ(settled_at(context, 1, 0), 0);
    CHECK_EQ(address_at(context, 2), 3); /* keeps its place */
    CHECK((file = fopen(gid, "r")) && fgets(second, sizeof(second), file));
    fclose(file);
    CHECK(!strcmp(text, second));
    CHECK_EQ(ibv_query_gid_table(context, table, 64, 0), 2);
    CHECK_EQ(table[1].gid_index, 2);
    CHECK_EQ(ibv_query_gid_ex(context, 1, 1, &table[0], 0), ENODATA);
    send_by(context, 2);
    run("ip address add 192.0.2.2/24 dev left");
    CHECK_EQ(settled_at(context, 1, 2), 2); /* and finds it again */
    send_by(context, 1);
    CHECK_EQ(port_state(context), IBV_PORT_ACTIVE);
    run("ip link set right down");
    expect(context, IBV_EVENT_PORT_ERR);
    CHECK_EQ(port_state(context), IBV_PORT_DOWN);
    run("ip link set right up");
    expect(context, IBV_EVENT_PORT_ACTIVE);
    CHECK_EQ(port_state(context), IBV_PORT_ACTIVE);
    run("ip link delete left");
    expect(context, IBV_EVENT_DEVICE_FATAL);
    CHECK_EQ(ibv_close_device(context), 0);
    return 0;
}
