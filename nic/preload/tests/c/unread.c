/* Every object of which there are events is destroyed while the program has not read them: they go
 * with it, and the descriptor is readable only for what is left. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "urxe_test.h"

static int readable(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    int result = poll(&poll_fd, 1, 0);

    CHECK(result >= 0);
    return result;
}

static void set_nonblocking(int fd, bool yes)
{
    CHECK_EQ(fcntl(fd, F_SETFL, yes ? O_NONBLOCK : 0), 0);
}

/* A program that asks is told at once that there is nothing. */
static void expect_no_completion_event(struct ibv_comp_channel *channel)
{
    struct ibv_cq *cq;
    void *context;

    CHECK_EQ(readable(channel->fd), 0);
    set_nonblocking(channel->fd, true);
    errno = 0;
    CHECK_EQ(ibv_get_cq_event(channel, &cq, &context), -1);
    CHECK_EQ(errno, EAGAIN);
    set_nonblocking(channel->fd, false);
}

static void expect_no_event(struct ibv_context *context)
{
    struct ibv_async_event event;

    CHECK_EQ(readable(context->async_fd), 0);
    set_nonblocking(context->async_fd, true);
    errno = 0;
    CHECK_EQ(ibv_get_async_event(context, &event), -1);
    CHECK_EQ(errno, EAGAIN);
    set_nonblocking(context->async_fd, false);
}

/* Waits for a descriptor while the device works by itself. */
static void wait_for(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    CHECK_EQ(poll(&poll_fd, 1, 60000), 1);
}

/* A queue pair in the error state, every receive of which completes at once. */
static struct ibv_qp *make_flushed(struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);

    CHECK(qp);
    to_init(qp, &(struct pair_options){0});
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    return qp;
}

static void complete(struct ibv_qp *qp)
{
    struct ibv_recv_wr wr = {.wr_id = 1}, *bad;

    CHECK_EQ(ibv_post_recv(qp, &wr, &bad), 0);
}

static void raise(struct ibv_cq *cq, struct ibv_qp *qp)
{
    struct ibv_wc wc[4];

    CHECK(ibv_poll_cq(cq, 4, wc) >= 0);
    CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
    complete(qp);
}

/* Events of three queues in one channel, one of which has two; each is destroyed before any is
 * read. */
static void check_completion_events(struct ibv_context *context, struct ibv_pd *pd)
{
    for (int first = 0; first < 3; first++) {
        struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
        struct ibv_cq *cqs[3], *cq;
        struct ibv_qp *qps[3];
        void *which;

        for (intptr_t i = 0; i < 3; i++) {
            CHECK((cqs[i] = ibv_create_cq(context, 8, (void *)i, channel, 0)) != NULL);
            qps[i] = make_flushed(pd, cqs[i]);
        }
        for (int i = 0; i < 4; i++)
            raise(cqs[i % 3], qps[i % 3]);
        CHECK_EQ(readable(channel->fd), 1);
        CHECK_EQ(ibv_destroy_qp(qps[first]), 0);
        CHECK_EQ(ibv_destroy_cq(cqs[first]), 0);
        for (intptr_t i = 0; i < 4; i++) {
            if (i % 3 == first)
                continue;
            CHECK_EQ(readable(channel->fd), 1);
            CHECK_EQ(ibv_get_cq_event(channel, &cq, &which), 0);
            CHECK(cq == cqs[i % 3] && which == (void *)(i % 3));
            ibv_ack_cq_events(cq, 1);
        }
        expect_no_completion_event(channel);
        raise(cqs[(first + 1) % 3], qps[(first + 1) % 3]);
        for (int i = 0; i < 3; i++) {
            if (i == first)
                continue;
            CHECK_EQ(ibv_destroy_qp(qps[i]), 0);
            CHECK_EQ(ibv_destroy_cq(cqs[i]), 0);
        }
        expect_no_completion_event(channel);
        CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
    }
}

/* An event that waits for company does not come after its queue is destroyed. */
static void check_moderated_event(struct ibv_context *context, struct ibv_pd *pd)
{
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, channel, 0);
    struct ibv_modify_cq_attr attr = {.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = {4, 1000}};
    struct ibv_qp *qp = make_flushed(pd, cq);

    CHECK_EQ(ibv_modify_cq(cq, &attr), 0);
    raise(cq, qp);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_destroy_cq(cq), 0);
    usleep(20000);
    expect_no_completion_event(channel);
    CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
}

static struct ibv_cq *overrun(struct ibv_context *context, struct ibv_pd *pd)
{
    struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
    struct ibv_qp *qp = make_flushed(pd, cq);

    for (int i = 0; i <= cq->cqe; i++)
        complete(qp);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    return cq;
}

static void check_overrun(struct ibv_context *context, struct ibv_pd *pd)
{
    struct ibv_cq *cq = overrun(context, pd);

    wait_for(context->async_fd);
    CHECK_EQ(ibv_destroy_cq(cq), 0);
    expect_no_event(context);
}

/* Events of both queue pairs, of which one is destroyed: the other's are left. */
static void check_queue_pairs(void)
{
    struct pair pair = make_pair((struct pair_options){0});
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&pair.left, &sge, 7, IBV_WR_RDMA_WRITE, 8), *bad;
    struct ibv_async_event event;

    wr.wr.rdma.remote_addr = (uintptr_t)pair.right.buffer;
    wr.wr.rdma.rkey = pair.right.mr->rkey + 1;
    CHECK_EQ(ibv_post_send(pair.left.qp, &wr, &bad), 0);
    CHECK_EQ(next_completion(pair.left.cq, pair.right.cq).status, IBV_WC_REM_ACCESS_ERR);
    wait_for(pair.context->async_fd);
    CHECK_EQ(ibv_modify_qp(pair.left.qp, &attr, IBV_QP_STATE), 0);
    CHECK_EQ(ibv_destroy_qp(pair.right.qp), 0);
    while (readable(pair.context->async_fd)) {
        CHECK_EQ(ibv_get_async_event(pair.context, &event), 0);
        CHECK(event.element.qp == pair.left.qp);
        ibv_ack_async_event(&event);
    }
    expect_no_event(pair.context);
    CHECK_EQ(ibv_destroy_qp(pair.left.qp), 0);
    for (struct side *side = &pair.left; side <= &pair.right; side++) {
        CHECK_EQ(ibv_destroy_cq(side->cq), 0);
        CHECK_EQ(ibv_dereg_mr(side->mr), 0);
        free(side->buffer);
    }
    CHECK_EQ(ibv_dealloc_pd(pair.pd), 0);
    CHECK_EQ(ibv_close_device(pair.context), 0);
}

/* A shared receive queue whose limit was reached. */
static void check_shared_queue(void)
{
    struct pair pair = make_pair((struct pair_options){0});
    struct ibv_srq_init_attr init = {.attr = {8, 1, 0}};
    struct ibv_srq *srq = ibv_create_srq(pair.pd, &init);
    struct ibv_srq_attr limit = {.srq_limit = 2};
    struct ibv_qp_init_attr qp_init = {.send_cq = pair.left.cq,
                                       .recv_cq = pair.right.cq,
                                       .srq = srq,
                                       .cap = {4, 4, 1, 1, 0},
                                       .qp_type = IBV_QPT_RC};
    struct pair_options options = {0};
    struct ibv_sge sge = {(uintptr_t)pair.left.buffer, 8, pair.left.mr->lkey};
    struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad_receive;
    struct ibv_send_wr send = {.sg_list = &sge,
                               .num_sge = 1,
                               .opcode = IBV_WR_SEND,
                               .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    struct ibv_qp *qp;

    CHECK(srq && (qp = ibv_create_qp(pair.pd, &qp_init)) != NULL);
    to_init(qp, &options);
    to_ready_to_receive(qp, &pair.gid, qp->qp_num);
    to_ready_to_send(qp, &options);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(ibv_post_srq_recv(srq, &receive, &bad_receive), 0);
    CHECK_EQ(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
    CHECK_EQ(ibv_post_send(qp, &send, &bad), 0);
    CHECK_EQ(next_completion(pair.left.cq, pair.right.cq).status, IBV_WC_SUCCESS);
    wait_for(pair.context->async_fd);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_destroy_srq(srq), 0);
    expect_no_event(pair.context);
    destroy_pair(&pair);
}

/* A thread that waits for an event while the only object that had one is destroyed waits on, and
 * gets the next. */
static void *wait_for_event(void *channel)
{
    struct ibv_cq *cq;
    void *context;

    CHECK_EQ(ibv_get_cq_event(channel, &cq, &context), 0);
    ibv_ack_cq_events(cq, 1);
    return context;
}

static void check_waiting_thread(struct ibv_context *context, struct ibv_pd *pd)
{
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *cqs[2];
    struct ibv_qp *qps[2];
    pthread_t thread;
    void *got;

    for (intptr_t i = 0; i < 2; i++) {
        CHECK((cqs[i] = ibv_create_cq(context, 8, (void *)i, channel, 0)) != NULL);
        qps[i] = make_flushed(pd, cqs[i]);
    }
    CHECK_EQ(pthread_create(&thread, NULL, wait_for_event, channel), 0);
    usleep(20000);
    CHECK_EQ(ibv_destroy_qp(qps[0]), 0);
    CHECK_EQ(ibv_destroy_cq(cqs[0]), 0);
    raise(cqs[1], qps[1]);
    CHECK_EQ(pthread_join(thread, &got), 0);
    CHECK(got == (void *)1);
    CHECK_EQ(ibv_destroy_qp(qps[1]), 0);
    CHECK_EQ(ibv_destroy_cq(cqs[1]), 0);
    expect_no_completion_event(channel);
    CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
}

int main(void)
{
    struct ibv_context *context = open_loopback();
    struct ibv_pd *pd = ibv_alloc_pd(context);

    CHECK(pd);
    check_completion_events(context, pd);
    check_moderated_event(context, pd);
    check_overrun(context, pd);
    check_waiting_thread(context, pd);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    CHECK_EQ(ibv_close_device(context), 0);
    check_queue_pairs();
    check_shared_queue();
    return 0;
}
