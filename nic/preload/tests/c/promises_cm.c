/* What the manual pages of librdmacm promise: which call is refused in
 * which state, what events carry, what a connection makes of its queue pairs, and what waits. Run
 * in a network namespace of its own. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <unistd.h>

#include "urxe_test.h"

enum {
    REQUEST_BYTES = 56, /* of private data, in a request for a connection */
    REPLY_BYTES = 196,
    CONSUMER_REJECT = 28, /* IBTA 12.6.7.2 */
    NO_SERVICE = 8,
};

/* The call gives -1 and this errno. */
#define CHECK_FAILS(call, error)                                                                   \
    do {                                                                                           \
        errno = 0;                                                                                 \
        CHECK_EQ(call, -1);                                                                        \
        CHECK_EQ(errno, error);                                                                    \
    } while (0)

/* An address of the loopback interface beside its own, which names no device, but all. */
enum { OWN_ADDRESS = 0xc0000201, NO_ADDRESS = 0xc6336401, GROUP = 0xef090007 };

static struct sockaddr_in address_of(uint32_t ip, uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(ip)}};
}

/* The next event of a channel, which is of this kind and not acknowledged yet. */
static struct rdma_cm_event *next_event(struct rdma_event_channel *channel,
                                        enum rdma_cm_event_type type)
{
    struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
    struct rdma_cm_event *event;

    CHECK_EQ(poll(&fd, 1, 60000), 1);
    CHECK_EQ(rdma_get_cm_event(channel, &event), 0);
    if (event->event != type) {
        fprintf(stderr, "%s in place of %s\n", rdma_event_str(event->event), rdma_event_str(type));
        exit(1);
    }
    return event;
}

static void expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type,
                   struct rdma_cm_id *id)
{
    struct rdma_cm_event *event = next_event(channel, type);

    CHECK(event->id == id);
    CHECK_EQ(event->status, 0);
    CHECK_EQ(rdma_ack_cm_event(event), 0);
}

/* A channel without events, and identifiers that are not bound to anything. */
static void check_unbound(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct sockaddr_in address = address_of(GROUP, 0);
    struct rdma_cm_event *event;
    struct rdma_cm_id *id;
    uint8_t tos = 8;
    int flag = 1;

    CHECK(channel);
    CHECK_EQ(fcntl(channel->fd, F_SETFL, O_NONBLOCK), 0);
    CHECK_FAILS(rdma_get_cm_event(channel, &event), EAGAIN);
    CHECK_EQ(rdma_create_id(channel, &id, channel, RDMA_PS_TCP), 0);
    CHECK(id->channel == channel && id->context == channel && id->ps == RDMA_PS_TCP);
    CHECK(!id->verbs && !id->qp);
    CHECK_FAILS(rdma_disconnect(id), EINVAL);
    CHECK_FAILS(rdma_reject(id, NULL, 0), EINVAL);
    CHECK_FAILS(rdma_notify(id, IBV_EVENT_COMM_EST), EINVAL);
    CHECK_FAILS(rdma_join_multicast(id, (struct sockaddr *)&address, NULL), EINVAL);
    CHECK_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)), 0);
    CHECK_FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 4), EINVAL);
    CHECK_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &flag, 4), 0);
    CHECK_FAILS(rdma_set_option(id, RDMA_OPTION_ID, 99, &flag, 4), ENOSYS);
    CHECK_FAILS(rdma_set_option(id, 99, 0, &flag, 4), ENOSYS);
    CHECK_EQ(rdma_destroy_id(id), 0);
    rdma_destroy_event_channel(channel);
}

/* What binding does, and what it is refused for. */
static void check_binding(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct sockaddr_in any = address_of(0, 0), address = address_of(OWN_ADDRESS, 0),
                       local = address_of(INADDR_LOOPBACK, 0), other = address_of(NO_ADDRESS, 0);
    struct rdma_cm_id *id, *second;

    CHECK_EQ(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    CHECK_EQ(rdma_bind_addr(id, (struct sockaddr *)&local), 0);
    CHECK(!id->verbs);
    CHECK_EQ(rdma_destroy_id(id), 0);
    CHECK_EQ(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    CHECK_EQ(rdma_create_id(channel, &second, NULL, RDMA_PS_TCP), 0);
    CHECK_FAILS(rdma_bind_addr(id, (struct sockaddr *)&other), EADDRNOTAVAIL);
    CHECK_EQ(rdma_bind_addr(id, (struct sockaddr *)&address), 0);
    CHECK(id->verbs && id->port_num == 1);
    CHECK(!strcmp(ibv_get_device_name(id->verbs->device), LOOPBACK));
    CHECK(rdma_get_src_port(id) != 0);
    CHECK_EQ(((struct sockaddr_in *)rdma_get_local_addr(id))->sin_addr.s_addr, htonl(OWN_ADDRESS));
    CHECK_FAILS(rdma_bind_addr(id, (struct sockaddr *)&address), EINVAL);
    CHECK_FAILS(rdma_resolve_route(id, 1000), EINVAL); /* no destination yet */
    address.sin_port = rdma_get_src_port(id);
    CHECK_FAILS(rdma_bind_addr(second, (struct sockaddr *)&address), EADDRINUSE);
    /* As it was: another address still can be. To all of them, it is on no device. */
    CHECK_EQ(rdma_bind_addr(second, (struct sockaddr *)&any), 0);
    CHECK(!second->verbs && rdma_get_src_port(second) != 0);
    CHECK(rdma_get_src_port(second) != rdma_get_src_port(id));
    CHECK_EQ(rdma_listen(second, 1), 0);
    CHECK_EQ(rdma_destroy_id(id), 0);
    /* A port that was given back is free. */
    CHECK_EQ(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    CHECK_EQ(rdma_bind_addr(id, (struct sockaddr *)&address), 0);
    CHECK_EQ(rdma_destroy_id(id), 0);
    CHECK_EQ(rdma_destroy_id(second), 0);
    rdma_destroy_event_channel(channel);
}

struct ends {
    struct rdma_event_channel *channels[2]; /* of the end that connects, and of the listener */
    struct rdma_cm_id *listener, *client, *server;
};

static void add_qp(struct rdma_cm_id *id)
{
    struct ibv_qp_init_attr init = {.cap = {4, 4, 1, 1, 16}, .qp_type = IBV_QPT_RC};

    CHECK_EQ(rdma_create_qp(id, NULL, &init), 0);
    CHECK(id->qp && id->pd && id->send_cq && id->recv_cq && id->send_cq_channel);
    CHECK(id->qp->send_cq == id->send_cq && id->qp->recv_cq == id->recv_cq);
    CHECK(init.cap.max_send_wr >= 4 && init.cap.max_inline_data >= 16);
    CHECK_FAILS(rdma_create_qp(id, NULL, &init), EINVAL); /* one and no more */
}

static enum ibv_qp_state state_of(struct rdma_cm_id *id)
{
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;

    CHECK_EQ(ibv_query_qp(id->qp, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
}

/* As far as a request at the listener, which is left in the event. */
static struct rdma_cm_event *request_connection(struct ends *ends, struct rdma_conn_param *param)
{
    struct sockaddr_in address = address_of(OWN_ADDRESS, 0);
    struct rdma_cm_event *event;

    for (int i = 0; i < 2; i++)
        CHECK(ends->channels[i] = rdma_create_event_channel());
    CHECK_EQ(rdma_create_id(ends->channels[1], &ends->listener, NULL, RDMA_PS_TCP), 0);
    CHECK_EQ(rdma_bind_addr(ends->listener, (struct sockaddr *)&address), 0);
    CHECK_EQ(rdma_listen(ends->listener, 4), 0);
    address.sin_port = rdma_get_src_port(ends->listener);
    CHECK_EQ(rdma_create_id(ends->channels[0], &ends->client, ends, RDMA_PS_TCP), 0);
    CHECK_EQ(rdma_resolve_addr(ends->client, NULL, (struct sockaddr *)&address, 2000), 0);
    expect(ends->channels[0], RDMA_CM_EVENT_ADDR_RESOLVED, ends->client);
    CHECK(ends->client->verbs && ends->client->port_num == 1);
    CHECK_FAILS(rdma_resolve_addr(ends->client, NULL, (struct sockaddr *)&address, 2000), EINVAL);
    CHECK_FAILS(rdma_connect(ends->client, param), EINVAL); /* no route yet */
    CHECK_EQ(rdma_resolve_route(ends->client, 2000), 0);
    expect(ends->channels[0], RDMA_CM_EVENT_ROUTE_RESOLVED, ends->client);
    CHECK(ends->client->route.num_paths > 0);
    add_qp(ends->client);
    CHECK_EQ(state_of(ends->client), IBV_QPS_INIT); /* receives may be posted */
    CHECK_EQ(rdma_connect(ends->client, param), 0);
    event = next_event(ends->channels[1], RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(event->listen_id == ends->listener && event->id != ends->listener);
    CHECK_EQ(event->status, 0);
    ends->server = event->id;
    CHECK(ends->server->verbs && ends->server->channel == ends->channels[1]);
    return event;
}

static void destroy_ends(struct ends *ends)
{
    if (ends->client->qp)
        rdma_destroy_qp(ends->client);
    if (ends->server->qp)
        rdma_destroy_qp(ends->server);
    CHECK_EQ(rdma_destroy_id(ends->client), 0);
    CHECK_EQ(rdma_destroy_id(ends->server), 0);
    CHECK_EQ(rdma_destroy_id(ends->listener), 0);
    for (int i = 0; i < 2; i++)
        rdma_destroy_event_channel(ends->channels[i]);
}

static void *acknowledge_late(void *event)
{
    usleep(50000);
    CHECK_EQ(rdma_ack_cm_event(event), 0);
    return NULL;
}

/* What the server is told of a request with these private data of 16 bytes. */
static void check_request(const struct rdma_cm_event *event, const struct rdma_cm_id *client,
                          const char *text)
{
    CHECK(event->param.conn.private_data_len >= 16);
    CHECK_EQ(event->param.conn.private_data_len, REQUEST_BYTES);
    CHECK(!strcmp(event->param.conn.private_data, text));
    for (int i = 16; i < REQUEST_BYTES; i++) /* what is beyond is zero */
        CHECK_EQ(((const char *)event->param.conn.private_data)[i], 0);
    /* As the peer sees them: what one end may have outstanding, the other has to serve. */
    CHECK_EQ(event->param.conn.initiator_depth, 3);
    CHECK_EQ(event->param.conn.responder_resources, 2);
    CHECK_EQ(event->param.conn.rnr_retry_count, 5);
    CHECK_EQ(event->param.conn.retry_count, 6);
    CHECK_EQ(event->param.conn.qp_num, client->qp->qp_num);
}

/* A connection from its request to its end. */
static void check_connection(void)
{
    char text[16] = "from the client";
    struct rdma_conn_param param = {.private_data = text,
                                    .private_data_len = 16,
                                    .responder_resources = 3,
                                    .initiator_depth = 2,
                                    .retry_count = 6,
                                    .rnr_retry_count = 5};
    struct ibv_recv_wr receive = {.wr_id = 5}, *bad;
    struct rdma_cm_event *event;
    struct ibv_qp_attr attr;
    struct ibv_wc wc;
    struct ends ends;
    pthread_t thread;
    double start;
    int mask;

    event = request_connection(&ends, &param);
    check_request(event, ends.client, text);
    CHECK_EQ(rdma_ack_cm_event(event), 0);
    CHECK_FAILS(rdma_accept(ends.listener, &param), EINVAL);
    add_qp(ends.server);
    CHECK_EQ(ibv_post_recv(ends.server->qp, &receive, &bad), 0);
    strcpy(text, "from the server");
    param.private_data_len = 16;
    param.responder_resources = 2;
    param.initiator_depth = 3;
    CHECK_EQ(rdma_accept(ends.server, &param), 0);
    event = next_event(ends.channels[0], RDMA_CM_EVENT_ESTABLISHED);
    CHECK(event->id == ends.client && event->id->context == &ends);
    CHECK(!strcmp(event->param.conn.private_data, text));
    CHECK_EQ(event->param.conn.private_data_len, REPLY_BYTES);
    CHECK_EQ(event->param.conn.qp_num, ends.server->qp->qp_num);
    CHECK_EQ(rdma_ack_cm_event(event), 0);
    expect(ends.channels[1], RDMA_CM_EVENT_ESTABLISHED, ends.server);
    CHECK(state_of(ends.client) == IBV_QPS_RTS && state_of(ends.server) == IBV_QPS_RTS);
    CHECK_EQ(rdma_get_dst_port(ends.client), rdma_get_src_port(ends.listener));
    CHECK_EQ(rdma_get_dst_port(ends.server), rdma_get_src_port(ends.client));
    CHECK_FAILS(rdma_notify(ends.server, IBV_EVENT_COMM_EST), EISCONN);
    attr.qp_state = IBV_QPS_RTR;
    CHECK_EQ(rdma_init_qp_attr(ends.client, &attr, &mask), 0);
    CHECK(mask & IBV_QP_DEST_QPN && mask & IBV_QP_AV);
    CHECK_EQ(attr.dest_qp_num, ends.server->qp->qp_num);
    /* Both ends learn of the end, and what was posted is flushed. */
    CHECK_EQ(rdma_disconnect(ends.server), 0);
    CHECK_EQ(state_of(ends.server), IBV_QPS_ERR);
    wc = next_completion(ends.server->recv_cq, NULL);
    CHECK(wc.wr_id == 5 && wc.status == IBV_WC_WR_FLUSH_ERR);
    event = next_event(ends.channels[0], RDMA_CM_EVENT_DISCONNECTED);
    CHECK(event->id == ends.client);
    CHECK_EQ(rdma_disconnect(ends.client), 0);
    CHECK_EQ(state_of(ends.client), IBV_QPS_ERR);
    expect(ends.channels[1], RDMA_CM_EVENT_DISCONNECTED, ends.server);
    expect(ends.channels[1], RDMA_CM_EVENT_TIMEWAIT_EXIT, ends.server);
    /* An identifier stays until its events are acknowledged. */
    rdma_destroy_qp(ends.client);
    CHECK(!ends.client->qp);
    start = seconds();
    CHECK_EQ(pthread_create(&thread, NULL, acknowledge_late, event), 0);
    CHECK_EQ(rdma_destroy_id(ends.client), 0);
    CHECK(seconds() - start > 0.04);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(rdma_create_id(ends.channels[0], &ends.client, NULL, RDMA_PS_TCP), 0);
    destroy_ends(&ends);
}

/* A request that is refused, by the program with its reason, or because no program listens. */
static void check_rejection(void)
{
    char text[REQUEST_BYTES + 1] = "no";
    struct rdma_conn_param param = {.private_data = text, .private_data_len = 3};
    struct sockaddr_in address;
    struct rdma_cm_event *event;
    struct ends ends;

    event = request_connection(&ends, &param);
    CHECK_EQ(rdma_ack_cm_event(event), 0);
    CHECK_EQ(rdma_reject(ends.server, text, 3), 0);
    CHECK_FAILS(rdma_accept(ends.server, &param), EINVAL);
    event = next_event(ends.channels[0], RDMA_CM_EVENT_REJECTED);
    CHECK(event->id == ends.client);
    CHECK_EQ(event->status, CONSUMER_REJECT);
    CHECK(!strcmp(event->param.conn.private_data, "no"));
    CHECK_EQ(rdma_ack_cm_event(event), 0);
    address = *(struct sockaddr_in *)rdma_get_peer_addr(ends.client);
    destroy_ends(&ends);

    CHECK(ends.channels[0] = rdma_create_event_channel());
    CHECK_EQ(rdma_create_id(ends.channels[0], &ends.client, NULL, RDMA_PS_TCP), 0);
    CHECK_EQ(rdma_resolve_addr(ends.client, NULL, (struct sockaddr *)&address, 2000), 0);
    expect(ends.channels[0], RDMA_CM_EVENT_ADDR_RESOLVED, ends.client);
    CHECK_EQ(rdma_resolve_route(ends.client, 2000), 0);
    expect(ends.channels[0], RDMA_CM_EVENT_ROUTE_RESOLVED, ends.client);
    param.qp_num = 99;
    param.private_data_len = REQUEST_BYTES + 1;
    CHECK_FAILS(rdma_connect(ends.client, &param), EINVAL);
    param.private_data_len = 0;
    CHECK_EQ(rdma_connect(ends.client, &param), 0);
    event = next_event(ends.channels[0], RDMA_CM_EVENT_REJECTED);
    CHECK_EQ(event->status, NO_SERVICE);
    CHECK_EQ(rdma_ack_cm_event(event), 0);
    CHECK_EQ(rdma_destroy_id(ends.client), 0);
    rdma_destroy_event_channel(ends.channels[0]);
}

/* A group: its address is in the event, a queue pair is attached, and leaving needs a join. */
static void check_multicast(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct ibv_qp_init_attr init = {.cap = {4, 4, 1, 1, 16}, .qp_type = IBV_QPT_UD};
    struct sockaddr_in address = address_of(OWN_ADDRESS, 0), group = address_of(GROUP, 0);
    struct rdma_cm_event *event;
    struct rdma_cm_id *id;

    CHECK_EQ(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP), 0);
    CHECK_EQ(rdma_bind_addr(id, (struct sockaddr *)&address), 0);
    CHECK_EQ(rdma_create_qp(id, NULL, &init), 0);
    CHECK_EQ(state_of(id), IBV_QPS_RTS); /* unconnected, and so ready */
    CHECK_FAILS(rdma_leave_multicast(id, (struct sockaddr *)&group), EADDRNOTAVAIL);
    CHECK_EQ(rdma_join_multicast(id, (struct sockaddr *)&group, &group), 0);
    event = next_event(channel, RDMA_CM_EVENT_MULTICAST_JOIN);
    CHECK(event->id == id && event->param.ud.private_data == &group);
    CHECK_EQ(event->param.ud.qp_num, 0xffffff);
    CHECK(event->param.ud.ah_attr.is_global && event->param.ud.ah_attr.port_num == 1);
    CHECK_EQ(event->param.ud.ah_attr.grh.dgid.raw[12], 0xef);
    CHECK_EQ(rdma_ack_cm_event(event), 0);
    CHECK_EQ(rdma_leave_multicast(id, (struct sockaddr *)&group), 0);
    rdma_destroy_qp(id);
    CHECK_EQ(rdma_destroy_id(id), 0);
    rdma_destroy_event_channel(channel);
}

/* Without a channel, calls return when what they began is done. */
static void check_synchronous(void)
{
    struct ibv_context **devices = rdma_get_devices(NULL);
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct sockaddr_in address = address_of(OWN_ADDRESS, 7471);
    struct rdma_cm_id *id;
    bool is_there = false;

    CHECK(devices);
    for (int i = 0; devices[i]; i++)
        is_there |= !strcmp(ibv_get_device_name(devices[i]->device), LOOPBACK);
    CHECK(is_there);
    rdma_free_devices(devices);
    CHECK_EQ(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), 0);
    CHECK_EQ(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000), 0);
    CHECK(id->verbs && id->event && id->event->event == RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK_EQ(rdma_migrate_id(id, channel), 0);
    CHECK(id->channel == channel);
    CHECK_EQ(rdma_resolve_route(id, 2000), 0);
    expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, id);
    CHECK_EQ(rdma_destroy_id(id), 0);
    rdma_destroy_event_channel(channel);
}

int main(void)
{
    check_unbound();
    check_binding();
    check_connection();
    check_rejection();
    check_multicast();
    check_synchronous();
    return 0;
}
