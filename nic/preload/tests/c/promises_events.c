/* What the manual pages promise about events, shared receive queues and multicast
 *: which completion raises an event, what waits for an acknowledgement,
 * and what a queue pair or a shared queue in use refuses. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "urxe_test.h"

enum { GRH = 40, QKEY = 0x11111111 };

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    return poll(&poll_fd, 1, timeout_ms) == 1;
}

static void send_bytes(struct side *side, unsigned flags)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(side, &sge, 7, IBV_WR_SEND, 8), *bad;

    wr.send_flags |= flags;
    CHECK_EQ(ibv_post_send(side->qp, &wr, &bad), 0);
}

static void take_event(struct side *side)
{
    struct ibv_cq *cq;
    void *context;

    CHECK(is_readable(side->channel->fd, 60000));
    CHECK_EQ(ibv_get_cq_event(side->channel, &cq, &context), 0);
    CHECK(cq == side->cq && context == cq->cq_context);
    ibv_ack_cq_events(cq, 1);
}

/* One event for each request, of completions that come after it; to ask for solicited ones does not
 * take back that any was asked for; and what fails counts as solicited. */
static void check_requests(void)
{
    struct pair pair = make_pair((struct pair_options){.with_channel = true});
    int fd = pair.right.channel->fd;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

    for (int i = 0; i < 5; i++)
        post_receive(&pair.right, i, 0, 64);
    /* Before the request, and not polled since: nothing new. */
    send_bytes(&pair.left, 0);
    CHECK_EQ(next_completion(pair.left.cq, NULL).status, IBV_WC_SUCCESS);
    CHECK_EQ(ibv_req_notify_cq(pair.right.cq, 0), 0);
    CHECK(!is_readable(fd, 0));
    /* Two completions, one event. */
    CHECK_EQ(ibv_req_notify_cq(pair.right.cq, 0), 0);
    CHECK_EQ(ibv_req_notify_cq(pair.right.cq, 1), 0);
    send_bytes(&pair.left, 0);
    send_bytes(&pair.left, 0);
    take_event(&pair.right);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(next_completion(pair.left.cq, NULL).status, IBV_WC_SUCCESS);
    CHECK(!is_readable(fd, 0));
    for (int i = 0; i < 3; i++)
        CHECK_EQ(next_completion(pair.right.cq, pair.left.cq).wr_id, i);
    CHECK_EQ(ibv_req_notify_cq(pair.right.cq, 1), 0);
    CHECK_EQ(ibv_modify_qp(pair.right.qp, &attr, IBV_QP_STATE), 0);
    take_event(&pair.right);
    CHECK(!is_readable(fd, 0));
    CHECK_EQ(next_completion(pair.right.cq, NULL).status, IBV_WC_WR_FLUSH_ERR);
    destroy_pair(&pair);
}

static void *acknowledge_late(void *event)
{
    usleep(50000);
    ibv_ack_async_event(event);
    return NULL;
}

/* An event of the receiver that is not acknowledged. */
static struct ibv_async_event first_event(struct ibv_context *context)
{
    struct ibv_async_event event;

    CHECK(is_readable(context->async_fd, 60000));
    CHECK_EQ(ibv_get_async_event(context, &event), 0);
    return event;
}

/* To destroy a queue pair or a shared queue waits until its asynchronous events are acknowledged.
 */
static void check_acknowledging(void)
{
    struct pair pair = make_pair((struct pair_options){0});
    struct ibv_srq_init_attr shared = {.attr = {4, 1, 0}};
    struct ibv_srq *srq = ibv_create_srq(pair.pd, &shared);
    struct ibv_qp_init_attr init = {.send_cq = pair.right.cq,
                                    .recv_cq = pair.right.cq,
                                    .srq = srq,
                                    .cap = {1, 0, 1, 0, 0},
                                    .qp_type = IBV_QPT_RC};
    struct ibv_srq_attr limit = {.srq_limit = 2};
    struct pair_options options = {0};
    struct ibv_recv_wr receive = {.wr_id = 1}, *bad_receive;
    struct ibv_send_wr send = {.wr_id = 2, .opcode = IBV_WR_SEND}, *bad_send;
    struct ibv_async_event event;
    pthread_t thread;
    struct ibv_qp *qp;
    double start;

    CHECK(srq && (qp = ibv_create_qp(pair.pd, &init)));
    to_init(qp, &options);
    to_ready_to_receive(qp, &pair.gid, qp->qp_num);
    to_ready_to_send(qp, &options);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(ibv_post_srq_recv(srq, &receive, &bad_receive), 0);
    CHECK_EQ(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
    CHECK_EQ(ibv_post_send(qp, &send, &bad_send), 0);
    CHECK_EQ(next_completion(pair.right.cq, NULL).status, IBV_WC_SUCCESS);
    /* That the connection works, and that the shared queue runs low, in any order. */
    for (bool has_limit = false; !has_limit;) {
        event = first_event(pair.context);
        has_limit = event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED;
        if (has_limit)
            CHECK(event.element.srq == srq);
        else
            ibv_ack_async_event(&event);
    }
    CHECK_EQ(ibv_destroy_srq(srq), EBUSY);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    start = seconds();
    CHECK_EQ(pthread_create(&thread, NULL, acknowledge_late, &event), 0);
    CHECK_EQ(ibv_destroy_srq(srq), 0);
    CHECK(seconds() - start > 0.04);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    destroy_pair(&pair);

    pair = make_pair((struct pair_options){.buffer_access = IBV_ACCESS_REMOTE_READ});
    {
        struct ibv_sge sge;
        struct ibv_send_wr wr = request(&pair.left, &sge, 1, IBV_WR_RDMA_WRITE, 8);

        wr.wr.rdma.remote_addr = (uintptr_t)pair.right.buffer;
        wr.wr.rdma.rkey = pair.right.mr->rkey;
        CHECK_EQ(ibv_post_send(pair.left.qp, &wr, &bad_send), 0);
    }
    CHECK_EQ(next_completion(pair.left.cq, pair.right.cq).status, IBV_WC_REM_ACCESS_ERR);
    event = first_event(pair.context);
    CHECK(event.element.qp == pair.right.qp);
    start = seconds();
    CHECK_EQ(pthread_create(&thread, NULL, acknowledge_late, &event), 0);
    CHECK_EQ(ibv_destroy_qp(pair.right.qp), 0);
    CHECK(seconds() - start > 0.04);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    init = (struct ibv_qp_init_attr){
        .send_cq = pair.right.cq, .recv_cq = pair.right.cq, .qp_type = IBV_QPT_RC};
    CHECK(pair.right.qp = ibv_create_qp(pair.pd, &init));
    destroy_pair(&pair);
}

/* A message in RTR, before the receiver may send, says by an event that there is a connection. */
static void check_established(void)
{
    struct pair pair = make_pair((struct pair_options){0});
    struct pair_options options = {0};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    struct ibv_async_event event;

    for (int i = 0; i < 2; i++) {
        struct ibv_qp *qp = i ? pair.right.qp : pair.left.qp,
                      *peer = i ? pair.left.qp : pair.right.qp;

        CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
        to_init(qp, &options);
        to_ready_to_receive(qp, &pair.gid, peer->qp_num);
    }
    to_ready_to_send(pair.left.qp, &options);
    post_receive(&pair.right, 1, 0, 64);
    send_bytes(&pair.left, 0);
    event = first_event(pair.context);
    CHECK_EQ(event.event_type, IBV_EVENT_COMM_EST);
    CHECK(event.element.qp == pair.right.qp);
    ibv_ack_async_event(&event);
    CHECK_EQ(next_completion(pair.right.cq, NULL).status, IBV_WC_SUCCESS);
    CHECK_EQ(next_completion(pair.left.cq, pair.right.cq).status, IBV_WC_SUCCESS);
    to_ready_to_send(pair.right.qp, &options);
    destroy_pair(&pair);
}

/* Events of an object that is gone are gone, too. */
static void check_events_of_what_is_gone(void)
{
    struct pair pair = make_pair((struct pair_options){.with_channel = true});
    int channel = pair.right.channel->fd, context = pair.context->async_fd;
    struct ibv_async_event event;
    struct ibv_cq *cq;
    void *cq_context;

    CHECK_EQ(fcntl(channel, F_SETFL, O_NONBLOCK), 0);
    CHECK_EQ(fcntl(context, F_SETFL, O_NONBLOCK), 0);
    CHECK_EQ(ibv_req_notify_cq(pair.right.cq, 0), 0);
    post_receive(&pair.right, 1, 0, 64);
    send_bytes(&pair.left, 0);
    CHECK(is_readable(channel, 60000));
    CHECK_EQ(ibv_destroy_qp(pair.right.qp), 0);
    CHECK_EQ(ibv_destroy_cq(pair.right.cq), 0);
    CHECK_EQ(ibv_get_cq_event(pair.right.channel, &cq, &cq_context), -1);
    CHECK_EQ(errno, EAGAIN);
    while (!ibv_get_async_event(pair.context, &event)) {
        CHECK(event.element.qp != pair.right.qp);
        ibv_ack_async_event(&event);
    }
    CHECK_EQ(ibv_destroy_comp_channel(pair.right.channel), 0);
    CHECK_EQ(ibv_dereg_mr(pair.right.mr), 0);
    free(pair.right.buffer);
    CHECK_EQ(ibv_destroy_qp(pair.left.qp), 0);
    CHECK_EQ(ibv_destroy_cq(pair.left.cq), 0);
    CHECK_EQ(ibv_destroy_comp_channel(pair.left.channel), 0);
    CHECK_EQ(ibv_dereg_mr(pair.left.mr), 0);
    free(pair.left.buffer);
    CHECK_EQ(ibv_dealloc_pd(pair.pd), 0);
    CHECK_EQ(ibv_close_device(pair.context), 0);
}

/* A shared queue: what it grants, what it refuses, and that a change that is half wrong changes
 * nothing. */
static void check_shared_queue(struct ibv_context *context, struct ibv_pd *pd)
{
    struct ibv_srq_init_attr init = {.srq_context = &init, .attr = {5, 2, 3}};
    struct ibv_srq *srq = ibv_create_srq(pd, &init);
    struct ibv_device_attr device;
    struct ibv_srq_attr attr;
    struct ibv_recv_wr receive[2] = {{0}}, *bad = NULL;
    uint32_t room;

    CHECK(srq && srq->srq_context == &init && srq->pd == pd && srq->context == context);
    CHECK(init.attr.max_wr >= 5 && init.attr.max_sge >= 2);
    CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
    CHECK_EQ(ibv_query_srq(srq, &attr), 0);
    CHECK_EQ(attr.srq_limit, 0); /* not looked at when it is made */
    room = attr.max_wr;
    attr = (struct ibv_srq_attr){.max_wr = 2 * room, .srq_limit = 2 * room + 1};
    CHECK_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), EINVAL);
    CHECK_EQ(ibv_query_srq(srq, &attr), 0);
    CHECK(attr.max_wr == room && attr.srq_limit == 0);
    CHECK_EQ(ibv_query_device(context, &device), 0);
    attr.max_wr = device.max_srq_wr + 1;
    CHECK_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
    CHECK_EQ(ibv_modify_srq(srq, &attr, 0), 0);
    CHECK_EQ(ibv_modify_srq(srq, &attr, 1 << 2), EINVAL);
    receive[0].next = &receive[1];
    receive[1].num_sge = 1000;
    CHECK_EQ(ibv_post_srq_recv(srq, receive, &bad), EINVAL);
    CHECK(bad == &receive[1]);
    receive[0].next = NULL;
    for (uint32_t i = 1; i < room; i++)
        CHECK_EQ(ibv_post_srq_recv(srq, receive, &bad), 0);
    CHECK_EQ(ibv_post_srq_recv(srq, receive, &bad), ENOMEM);
    CHECK(bad == &receive[0]);
    /* Fewer than wait is no room for them. */
    attr.max_wr = room - 1;
    CHECK_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
    CHECK_EQ(ibv_destroy_srq(srq), 0);
    for (int i = 0; i < 3; i++) {
        init.attr = (struct ibv_srq_attr){i == 0   ? 0
                                          : i == 1 ? device.max_srq_wr + 1
                                                   : 1,
                                          i == 2 ? device.max_srq_sge + 1 : 1, 0};
        errno = 0;
        CHECK(!ibv_create_srq(pd, &init));
        CHECK_EQ(errno, EINVAL);
    }
}

/* Sizes of completion queues; one that is refused stays as it is. */
static void check_queue_sizes(struct ibv_context *context)
{
    struct ibv_cq *cq = ibv_create_cq(context, 5, context, NULL, 0);
    struct ibv_device_attr device;
    int before;

    CHECK(cq && cq->cqe >= 5 && cq->cq_context == context && cq->context == context);
    CHECK_EQ(ibv_query_device(context, &device), 0);
    errno = 0;
    CHECK(!ibv_create_cq(context, device.max_cqe + 1, NULL, NULL, 0) && errno == EINVAL);
    errno = 0;
    CHECK(!ibv_create_cq(context, 1, NULL, NULL, -1) && errno == EINVAL);
    before = cq->cqe;
    CHECK_EQ(ibv_resize_cq(cq, device.max_cqe + 1), EINVAL);
    CHECK_EQ(ibv_resize_cq(cq, 0), EINVAL);
    CHECK_EQ(cq->cqe, before);
    CHECK_EQ(ibv_resize_cq(cq, 50), 0);
    CHECK(cq->cqe >= 50);
    CHECK_EQ(ibv_destroy_cq(cq), 0);
}

/* Whether this host has told its network that it wants the group (`/proc/net/igmp` has it in the
 * processor's order), once it is as expected. */
static void expect_membership(uint32_t group, bool expected)
{
    char line[200], hex[9];

    snprintf(hex, sizeof(hex), "%08X", htonl(group));
    for (double start = seconds();; usleep(1000)) {
        FILE *file = fopen("/proc/net/igmp", "r");
        bool found = false;

        CHECK(file && seconds() - start < 60);
        while (fgets(line, sizeof(line), file))
            found |= strstr(line, hex) != NULL;
        fclose(file);
        if (found == expected)
            return;
    }
}

/* A datagram queue pair that may send. */
static struct ibv_qp *datagram_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_UD};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};

    CHECK(qp != NULL);
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
             0);
    attr.qp_state = IBV_QPS_RTR;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_RTS;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    return qp;
}

/* A queue pair of a group cannot be destroyed, and gets one copy however often it was attached. */
static void check_multicast(struct ibv_context *context, struct ibv_pd *pd)
{
    static char memory[4096];
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_qp *qp = datagram_qp(pd, cq);
    /* Of this process alone: tests run at the same time. */
    uint32_t ip = 0xef090000 | (getpid() & 0xffff);
    union ibv_gid group = {.raw = {[10] = 0xff,
                                   [11] = 0xff,
                                   [12] = ip >> 24,
                                   [13] = ip >> 16 & 0xff,
                                   [14] = ip >> 8 & 0xff,
                                   [15] = ip & 0xff}};
    struct ibv_ah_attr to = {
        .is_global = 1, .port_num = 1, .grh = {.dgid = group, .hop_limit = 1, .sgid_index = 60}};
    struct ibv_sge in = {(uintptr_t)memory, GRH + 8, mr->lkey},
                   out = {(uintptr_t)memory + 100, 8, mr->lkey};
    struct ibv_recv_wr receive = {.sg_list = &in, .num_sge = 1}, *bad_receive;
    struct ibv_send_wr send = {.wr_id = 9, .sg_list = &out, .num_sge = 1, .opcode = IBV_WR_SEND},
                       *bad_send;
    struct ibv_wc wc;
    int received = 0;

    CHECK(mr && cq && qp);
    errno = 0;
    CHECK(!ibv_create_ah(pd, &to) && errno == EINVAL); /* no such source address */
    to.grh.sgid_index = 0;
    CHECK((send.wr.ud.ah = ibv_create_ah(pd, &to)) != NULL);
    CHECK(send.wr.ud.ah->pd == pd && send.wr.ud.ah->context == context);
    send.wr.ud.remote_qpn = 0xffffff;
    send.wr.ud.remote_qkey = QKEY;
    expect_membership(ip, false);
    CHECK_EQ(ibv_attach_mcast(qp, &group, 0), 0);
    CHECK_EQ(ibv_attach_mcast(qp, &group, 0), 0);
    expect_membership(ip, true);
    for (int i = 0; i < 4; i++) {
        receive.wr_id = i;
        CHECK_EQ(ibv_post_recv(qp, &receive, &bad_receive), 0);
    }
    /* Two messages: when the second is there, a second copy of the first would be as well. */
    for (int i = 0; i < 2; i++) {
        memory[100] = 'a' + i;
        send.send_flags = IBV_SEND_SIGNALED;
        CHECK_EQ(ibv_post_send(qp, &send, &bad_send), 0);
        if (i == 1) /* it is not needed once the request is posted */
            CHECK_EQ(ibv_destroy_ah(send.wr.ud.ah), 0);
        for (bool is_sent = false, is_there = false; !is_sent || !is_there;) {
            wc = next_completion(cq, NULL);
            CHECK_EQ(wc.status, IBV_WC_SUCCESS);
            if (wc.wr_id == 9) {
                is_sent = true;
            } else {
                is_there = true;
                CHECK_EQ(wc.byte_len, GRH + 8);
                CHECK_EQ(memory[GRH], 'a' + i);
                received++;
            }
        }
    }
    CHECK_EQ(received, 2);
    CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 0);
    CHECK_EQ(ibv_destroy_qp(qp), EBUSY);
    CHECK_EQ(ibv_detach_mcast(qp, &group, 0), 0);
    expect_membership(ip, false);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_destroy_cq(cq), 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
}

int main(void)
{
    struct ibv_context *context = open_loopback();
    struct ibv_pd *pd = ibv_alloc_pd(context);

    CHECK(pd);
    check_queue_sizes(context);
    check_shared_queue(context, pd);
    check_multicast(context, pd);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    CHECK_EQ(ibv_close_device(context), 0);
    check_requests();
    check_acknowledging();
    check_established();
    check_events_of_what_is_gone();
    return 0;
}
