/* Completion queues: timestamps, moderation, size, overrun, events. */
#include <poll.h>

#include "urxe_test.h"

static void post_send(struct side *side, uint64_t wr_id, unsigned flags)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(side, &sge, wr_id, IBV_WR_SEND, 8), *bad;

    wr.send_flags = flags;
    CHECK_EQ(ibv_post_send(side->qp, &wr, &bad), 0);
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* A queue pair on an extended queue, connected to itself. */
static void check_timestamps(void)
{
    struct ibv_context *context = open_loopback();
    struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
    struct ibv_cq_init_attr_ex attr = {
        .cqe = 8,
        .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
    };
    struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &attr);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_qp_init_attr init = {.send_cq = ibv_cq_ex_to_cq(cq),
                                    .recv_cq = ibv_cq_ex_to_cq(cq),
                                    .cap = {4, 4, 1, 1, 64},
                                    .qp_type = IBV_QPT_RC};
    struct ibv_poll_cq_attr poll_attr = {0};
    struct ibv_device_attr_ex device;
    struct pair_options options = {0};
    uint64_t before, before_wall, last = 0;
    struct ibv_recv_wr receive = {.wr_id = 1}, *bad_receive;
    struct ibv_send_wr send = {.wr_id = 2, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED},
                       *bad_send;
    union ibv_gid gid;
    struct ibv_qp *qp;

    CHECK(cq && pd && (qp = ibv_create_qp(pd, &init)));
    CHECK_EQ(ibv_query_device_ex(context, NULL, &device), 0);
    CHECK_EQ(device.completion_timestamp_mask, ~0ull);
    CHECK_EQ(device.hca_core_clock, 1000000);
    CHECK_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
    to_init(qp, &options);
    to_ready_to_receive(qp, &gid, qp->qp_num);
    to_ready_to_send(qp, &options);
    CHECK_EQ(ibv_query_rt_values_ex(context, &values), 0);
    CHECK_EQ(values.comp_mask, IBV_VALUES_MASK_RAW_CLOCK);
    before = values.raw_clock.tv_sec * 1000000000ull + values.raw_clock.tv_nsec;
    before_wall = clock_ns(CLOCK_REALTIME);
    CHECK(before <= clock_ns(CLOCK_MONOTONIC));
    CHECK_EQ(ibv_post_recv(qp, &receive, &bad_receive), 0);
    CHECK_EQ(ibv_post_send(qp, &send, &bad_send), 0);
    for (int got = 0; got < 2;) {
        if (ibv_start_poll(cq, &poll_attr))
            continue;
        got++;
        CHECK_EQ(cq->status, IBV_WC_SUCCESS);
        CHECK(ibv_wc_read_completion_ts(cq) > before);
        CHECK(ibv_wc_read_completion_ts(cq) >= last);
        CHECK(ibv_wc_read_completion_ts(cq) <= clock_ns(CLOCK_MONOTONIC));
        CHECK(ibv_wc_read_completion_wallclock_ns(cq) + 1000000 > before_wall);
        CHECK(ibv_wc_read_completion_wallclock_ns(cq) <= clock_ns(CLOCK_REALTIME) + 1000000);
        last = ibv_wc_read_completion_ts(cq);
        ibv_end_poll(cq);
    }
    values.comp_mask = 4;
    CHECK_EQ(ibv_query_rt_values_ex(context, &values), EINVAL);
    attr.wc_flags = IBV_WC_EX_WITH_FLOW_TAG;
    CHECK(!ibv_create_cq_ex(context, &attr) && errno == EOPNOTSUPP);
    attr.wc_flags = IBV_WC_EX_WITH_BYTE_LEN;
    attr.comp_mask = 1 << 30;
    CHECK(!ibv_create_cq_ex(context, &attr) && errno == EINVAL);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    CHECK_EQ(ibv_close_device(context), 0);
}

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    return poll(&poll_fd, 1, timeout_ms) == 1;
}

static void acknowledge_event(struct side *side)
{
    struct ibv_cq *cq;
    void *context;

    CHECK_EQ(ibv_get_cq_event(side->channel, &cq, &context), 0);
    CHECK(cq == side->cq);
    ibv_ack_cq_events(cq, 1);
}

static void drain(struct pair *pair, int count)
{
    for (int i = 0; i < count; i++)
        CHECK_EQ(next_completion(pair->right.cq, pair->left.cq).status, IBV_WC_SUCCESS);
}

/* An event waits for three completions, or for its time. */
static void check_moderation(void)
{
    struct pair pair = make_pair((struct pair_options){.with_channel = true});
    struct ibv_modify_cq_attr attr = {.attr_mask = IBV_CQ_ATTR_MODERATE,
                                      .moderate = {.cq_count = 3}};
    double start;

    CHECK_EQ(ibv_modify_cq(pair.right.cq, &attr), 0);
    for (int i = 0; i < 8; i++)
        post_receive(&pair.right, i, i * 64, 64);
    CHECK_EQ(ibv_req_notify_cq(pair.right.cq, 0), 0);
    post_send(&pair.left, 1, 0);
    post_send(&pair.left, 2, 0);
    CHECK(!is_readable(pair.right.channel->fd, 20));
    post_send(&pair.left, 3, 0);
    CHECK(is_readable(pair.right.channel->fd, 60000));
    acknowledge_event(&pair.right);
    drain(&pair, 3);
    attr.moderate.cq_period = 60000;
    CHECK_EQ(ibv_modify_cq(pair.right.cq, &attr), 0);
    CHECK_EQ(ibv_req_notify_cq(pair.right.cq, 0), 0);
    start = seconds();
    post_send(&pair.left, 4, 0);
    CHECK(is_readable(pair.right.channel->fd, 60000));
    CHECK(seconds() - start > 0.05);
    acknowledge_event(&pair.right);
    drain(&pair, 1);
    attr.moderate = (struct ibv_moderate_cq){0};
    CHECK_EQ(ibv_modify_cq(pair.right.cq, &attr), 0);
    CHECK_EQ(ibv_req_notify_cq(pair.right.cq, 0), 0);
    post_send(&pair.left, 5, 0);
    acknowledge_event(&pair.right);
    attr.attr_mask = 8;
    CHECK_EQ(ibv_modify_cq(pair.right.cq, &attr), EINVAL);
    CHECK_EQ(ibv_modify_cq(pair.right.cq, NULL), EINVAL);
    destroy_pair(&pair);
}

/* Only a solicited completion raises the event, and poll(2) sees it. */
static void check_solicited(void)
{
    struct pair pair = make_pair((struct pair_options){.with_channel = true});

    for (int i = 0; i < 3; i++)
        post_receive(&pair.right, i, i * 64, 64);
    CHECK_EQ(ibv_req_notify_cq(pair.right.cq, 1), 0);
    post_send(&pair.left, 1, 0);
    CHECK(!is_readable(pair.right.channel->fd, 50));
    post_send(&pair.left, 2, IBV_SEND_SOLICITED);
    CHECK(is_readable(pair.right.channel->fd, 60000));
    acknowledge_event(&pair.right);
    drain(&pair, 2);
    destroy_pair(&pair);
}

static void next_event(struct ibv_context *context, struct ibv_async_event *event)
{
    do {
        CHECK(is_readable(context->async_fd, 60000));
        CHECK_EQ(ibv_get_async_event(context, event), 0);
        if (event->event_type == IBV_EVENT_COMM_EST)
            ibv_ack_async_event(event);
    } while (event->event_type == IBV_EVENT_COMM_EST);
}

/* A completion that finds no room: an event of the queue, then the queue pair is in error. */
static void check_overrun(void)
{
    struct pair pair = make_pair((struct pair_options){.signal_all = true});
    struct ibv_async_event event;
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;
    struct ibv_wc wc[8];
    double start = seconds();
    int got = 0;

    CHECK_EQ(ibv_resize_cq(pair.left.cq, 0), EINVAL);
    CHECK_EQ(ibv_resize_cq(pair.left.cq, 2), 0);
    CHECK(pair.left.cq->cqe >= 2);
    for (int i = 0; i < pair.left.cq->cqe + 1; i++) {
        post_receive(&pair.right, i, i * 64, 64);
        post_send(&pair.left, i, 0);
    }
    next_event(pair.context, &event);
    CHECK_EQ(event.event_type, IBV_EVENT_CQ_ERR);
    CHECK(event.element.cq == pair.left.cq);
    CHECK_EQ(pair.left.cq->async_events_completed, 0);
    ibv_ack_async_event(&event);
    CHECK_EQ(pair.left.cq->async_events_completed, 1);
    next_event(pair.context, &event);
    CHECK_EQ(event.event_type, IBV_EVENT_QP_FATAL);
    CHECK(event.element.qp == pair.left.qp);
    CHECK_EQ(pair.left.qp->events_completed, 0);
    ibv_ack_async_event(&event);
    CHECK_EQ(pair.left.qp->events_completed, 1);
    CHECK_EQ(ibv_query_qp(pair.left.qp, &attr, IBV_QP_STATE, &init), 0);
    CHECK_EQ(attr.qp_state, IBV_QPS_ERR);
    while (got < pair.left.cq->cqe && seconds() - start < 60) {
        int more = ibv_poll_cq(pair.left.cq, 8, wc);

        CHECK(more >= 0);
        for (int i = 0; i < more; i++)
            CHECK_EQ(wc[i].wr_id, got++); /* those that found room, in order */
    }
    CHECK_EQ(got, pair.left.cq->cqe);
    destroy_pair(&pair);
}

/* What waits in a queue survives a change of its size. */
static void check_resize(void)
{
    struct pair pair = make_pair((struct pair_options){.signal_all = true});
    struct ibv_wc wc;

    for (int i = 0; i < 10; i++) {
        post_receive(&pair.right, i, i * 64, 64);
        post_send(&pair.left, i, 0);
    }
    drain(&pair, 10);
    for (double start = seconds();
         seconds() - start < 0.1;) /* until the last acknowledgement came */
        CHECK_EQ(ibv_poll_cq(pair.right.cq, 1, &wc), 0);
    CHECK_EQ(ibv_resize_cq(pair.left.cq, 9), EINVAL);
    CHECK_EQ(ibv_resize_cq(pair.left.cq, 10), 0);
    CHECK_EQ(ibv_resize_cq(pair.left.cq, 1000), 0);
    for (int i = 0; i < 10; i++)
        CHECK_EQ(next_completion(pair.left.cq, NULL).wr_id, i);
    CHECK_EQ(ibv_resize_cq(pair.left.cq, 1 << 30), EINVAL);
    destroy_pair(&pair);
}

int main(void)
{
    check_timestamps();
    check_moderation();
    check_solicited();
    check_overrun();
    check_resize();
    return 0;
}
