/* Live objects of RDMA-CM: see objects.h. */
#ifndef URXE_CM_OBJECTS_H
#define URXE_CM_OBJECTS_H

#include "objects.h"

/* --- RDMA-CM ---------------------------------------------------------------------------------- */

static struct sockaddr *address(int port)
{
    struct sockaddr_in *made = zeroed(sizeof *made);

    made->sin_family = AF_INET;
    made->sin_port = htons(port);
    inet_pton(AF_INET, ADDRESS, &made->sin_addr);
    return (struct sockaddr *)made;
}

static struct sockaddr *group(void)
{
    struct sockaddr_in *made = (struct sockaddr_in *)address(0);

    inet_pton(AF_INET, "239.1.2.3", &made->sin_addr);
    return (struct sockaddr *)made;
}

static struct rdma_addrinfo *found_address(void)
{
    struct rdma_addrinfo hints = {.ai_flags = RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP};
    struct rdma_addrinfo *found;

    MADE(rdma_getaddrinfo(ADDRESS, "7471", &hints, &found) == 0);
    return found;
}

static struct rdma_event_channel *event_channel(void)
{
    struct rdma_event_channel *made = rdma_create_event_channel();

    MADE(made);
    never_block(made->fd);
    return made;
}

static struct rdma_cm_id *new_id(enum rdma_port_space space)
{
    struct rdma_cm_id *made;

    MADE(rdma_create_id(event_channel(), &made, NULL, space) == 0);
    return made;
}

/* The next event of an identifier's channel, which has to be of that kind. */
static struct rdma_cm_event *event(struct rdma_event_channel *from, enum rdma_cm_event_type type)
{
    struct pollfd readable = {.fd = from->fd, .events = POLLIN};
    struct rdma_cm_event *got;

    MADE(poll(&readable, 1, -1) == 1);
    MADE(rdma_get_cm_event(from, &got) == 0);
    MADE(got->event == type);
    return got;
}

static void wait_for(struct rdma_cm_id *id, enum rdma_cm_event_type type)
{
    MADE(rdma_ack_cm_event(event(id->channel, type)) == 0);
}

static struct rdma_cm_event *some_event(void)
{
    struct rdma_cm_id *id = new_id(RDMA_PS_TCP);

    MADE(rdma_resolve_addr(id, NULL, address(7471), 2000) == 0);
    return event(id->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
}

static void add_qp(struct rdma_cm_id *id, enum ibv_qp_type type)
{
    MADE(rdma_create_qp(id, NULL, qp_init(type, NULL)) == 0);
}

/* One that knows its device. */
static struct rdma_cm_id *addressed(void)
{
    struct rdma_cm_id *id = new_id(RDMA_PS_TCP);

    MADE(rdma_resolve_addr(id, NULL, address(7471), 2000) == 0);
    wait_for(id, RDMA_CM_EVENT_ADDR_RESOLVED);
    return id;
}

#ifdef HAVE_rdma_resolve_addrinfo
/* One that knows what a name stands for. */
static struct rdma_cm_id *with_info(void)
{
    struct rdma_cm_id *id = new_id(RDMA_PS_TCP);

    MADE(rdma_resolve_addrinfo(id, ADDRESS, "7471", NULL) == 0);
    wait_for(id, RDMA_CM_EVENT_ADDRINFO_RESOLVED);
    return id;
}
#endif

/* One that knows its device and its way to the port, and has no queue pair. */
static struct rdma_cm_id *resolved(enum rdma_port_space space, int port)
{
    struct rdma_cm_id *id = new_id(space);

    MADE(rdma_resolve_addr(id, NULL, address(port), 2000) == 0);
    wait_for(id, RDMA_CM_EVENT_ADDR_RESOLVED);
    MADE(rdma_resolve_route(id, 2000) == 0);
    wait_for(id, RDMA_CM_EVENT_ROUTE_RESOLVED);
    return id;
}

/* The same with a queue pair. */
static struct rdma_cm_id *ready_id(enum rdma_port_space space)
{
    struct rdma_cm_id *id = resolved(space, 7471);

    add_qp(id, space == RDMA_PS_TCP ? IBV_QPT_RC : IBV_QPT_UD);
    return id;
}

static struct rdma_cm_id *bound(void)
{
    struct rdma_cm_id *id = new_id(RDMA_PS_TCP);

    MADE(rdma_bind_addr(id, address(0)) == 0);
    return id;
}

static struct rdma_cm_id *listener(void)
{
    struct rdma_cm_id *id = bound();

    MADE(rdma_listen(id, 4) == 0);
    return id;
}

/* Both ends of a connection. */
struct ends {
    struct rdma_cm_id *client, *server;
};

static struct ends asking(void)
{
    struct rdma_conn_param parameters = {.retry_count = 7, .rnr_retry_count = 7};
    struct rdma_cm_id *listening = listener();
    struct ends ends = {.client = resolved(RDMA_PS_TCP, ntohs(rdma_get_src_port(listening)))};
    struct rdma_cm_event *request;

    add_qp(ends.client, IBV_QPT_RC);
    MADE(rdma_connect(ends.client, &parameters) == 0);
    request = event(listening->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    ends.server = request->id;
    MADE(rdma_ack_cm_event(request) == 0);
    add_qp(ends.server, IBV_QPT_RC);
    return ends;
}

static struct ends established(void)
{
    struct rdma_conn_param parameters = {.rnr_retry_count = 7};
    struct ends ends = asking();

    MADE(rdma_accept(ends.server, &parameters) == 0);
    wait_for(ends.client, RDMA_CM_EVENT_ESTABLISHED);
    wait_for(ends.server, RDMA_CM_EVENT_ESTABLISHED);
    return ends;
}

/* The server's end, to which a client asks to be connected. */
static struct rdma_cm_id *asked(void)
{
    return asking().server;
}

static struct rdma_cm_id *connected(void)
{
    return established().client;
}

/* One with a completion to come in each of its queues. */
static struct rdma_cm_id *completing(void)
{
    const struct ends ends = established();

    struct ibv_mr *at_client = mr_in(ends.client->pd), *at_server = mr_in(ends.server->pd);

    MADE(rdma_post_recv(ends.client, NULL, buffer, 0, at_client) == 0);
    MADE(rdma_post_recv(ends.server, NULL, buffer, 0, at_server) == 0);
    MADE(rdma_post_send(ends.server, NULL, buffer, 0, at_server, IBV_SEND_SIGNALED) == 0);
    MADE(rdma_post_send(ends.client, NULL, buffer, 0, at_client, IBV_SEND_SIGNALED) == 0);
    return ends.client;
}

static struct rdma_cm_id *joined(void)
{
    struct rdma_cm_id *id = ready_id(RDMA_PS_UDP);

    MADE(rdma_join_multicast(id, group(), NULL) == 0);
    wait_for(id, RDMA_CM_EVENT_MULTICAST_JOIN);
    return id;
}

#endif
