/* Connects by RDMA-CM, and prints each event with its status and private data.
 *
 *   parley listen PORT accept|reject DATA
 *   parley connect ADDRESS PORT DATA leave|stay|read|write|send
 *
 * DATA goes with the request, and with the answer to it. The end that listens lets the other one
 * SEND once. `leave` disconnects, `stay` waits for the other end to do so; the others first do what
 * the peer has to refuse: READ or WRITE memory that it did not offer, or SEND more than it takes.
 */
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OFFERED_BYTES = 64, BUFFER_BYTES = 4096, NOT_OFFERED = 0x1234 };

static char buffer[BUFFER_BYTES];

static void die(const char *what)
{
    perror(what);
    exit(1);
}

/* The next event, which is printed, and is the caller's. */
static struct rdma_cm_event *next(struct rdma_event_channel *channel)
{
    struct rdma_cm_event *event;
    if (rdma_get_cm_event(channel, &event))
        die("rdma_get_cm_event");
    const struct rdma_conn_param *param = &event->param.conn;
    const char *data = param->private_data;
    printf("%s %d [%.*s]\n", rdma_event_str(event->event), event->status,
           data ? param->private_data_len : 0, data ? data : "");
    fflush(stdout);
    return event;
}

static struct rdma_cm_event *expect(struct rdma_event_channel *channel,
                                    enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event = next(channel);
    if (event->event != type)
        exit(2);
    return event;
}

static void create_qp(struct rdma_cm_id *id)
{
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
    };
    if (rdma_create_qp(id, NULL, &attr))
        die("rdma_create_qp");
}

static struct rdma_conn_param with_data(const char *data)
{
    struct rdma_conn_param param = {
        .private_data = data,
        .private_data_len = strlen(data),
        .responder_resources = 1,
        .initiator_depth = 1,
    };
    return param;
}

static struct ibv_mr *registered(struct rdma_cm_id *id)
{
    struct ibv_mr *mr = rdma_reg_msgs(id, buffer, sizeof buffer);
    if (!mr)
        die("rdma_reg_msgs");
    return mr;
}

/* Prints how the request ended that was posted. */
static void completed(const char *what, struct rdma_cm_id *id)
{
    struct ibv_wc wc;
    if (rdma_get_send_comp(id, &wc) != 1)
        die(what);
    printf("%s: %s\n", what, ibv_wc_status_str(wc.status));
    fflush(stdout);
}

static int listening(struct rdma_event_channel *channel, char **words)
{
    struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE,
                                  .ai_family = AF_INET,
                                  .ai_port_space = RDMA_PS_TCP},
                         *found;
    struct rdma_cm_id *listener;
    if (rdma_getaddrinfo(NULL, words[0], &hints, &found) ||
        rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) ||
        rdma_bind_addr(listener, found->ai_src_addr) || rdma_listen(listener, 1))
        die("listen");
    struct rdma_cm_id *id = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST)->id;
    struct rdma_conn_param param = with_data(words[2]);
    if (!strcmp(words[1], "reject"))
        return rdma_reject(id, param.private_data, param.private_data_len);
    create_qp(id);
    struct ibv_mr *mr = registered(id);
    if (rdma_post_recv(id, NULL, buffer, OFFERED_BYTES, mr) || rdma_accept(id, &param))
        die("accept");
    expect(channel, RDMA_CM_EVENT_ESTABLISHED);
    expect(channel, RDMA_CM_EVENT_DISCONNECTED);
    return 0;
}

static int connecting(struct rdma_event_channel *channel, char **words)
{
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *found;
    struct rdma_cm_id *id;
    if (rdma_getaddrinfo(words[0], words[1], &hints, &found) ||
        rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) ||
        rdma_resolve_addr(id, NULL, found->ai_dst_addr, 2000))
        die("resolve");
    expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    if (rdma_resolve_route(id, 2000))
        die("rdma_resolve_route");
    expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    create_qp(id);
    struct ibv_mr *mr = registered(id);
    struct rdma_conn_param param = with_data(words[2]);
    if (rdma_connect(id, &param))
        die("rdma_connect");
    if (next(channel)->event != RDMA_CM_EVENT_ESTABLISHED)
        return 0;
    const char *then = words[3];
    int failed = 0;
    if (!strcmp(then, "leave"))
        failed = rdma_disconnect(id);
    else if (!strcmp(then, "read"))
        failed =
            rdma_post_read(id, NULL, buffer, sizeof buffer, mr, 0, (uintptr_t)buffer, NOT_OFFERED);
    else if (!strcmp(then, "write"))
        failed =
            rdma_post_write(id, NULL, buffer, sizeof buffer, mr, 0, (uintptr_t)buffer, NOT_OFFERED);
    else if (!strcmp(then, "send"))
        failed = rdma_post_send(id, NULL, buffer, sizeof buffer, mr, 0);
    if (failed)
        die(then);
    expect(channel, RDMA_CM_EVENT_DISCONNECTED);
    if (strcmp(then, "leave") && strcmp(then, "stay"))
        completed(then, id);
    return 0;
}

int main(int argc, char **argv)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    if (!channel)
        die("rdma_create_event_channel");
    if (argc == 5 && !strcmp(argv[1], "listen"))
        return listening(channel, argv + 2);
    if (argc == 6 && !strcmp(argv[1], "connect"))
        return connecting(channel, argv + 2);
    fprintf(stderr, "usage: see the source\n");
    return 2;
}
