/* The calls that block, and what ends each. */
#ifndef URXE_BLOCKING_CALLS_H
#define URXE_BLOCKING_CALLS_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "urxe_test.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct rdma_event_channel *cm_channel;
static struct rdma_cm_id *ids[64];
static int id_count;

static struct ibv_qp *make_flushed(struct ibv_cq *of)
{
    struct ibv_qp_init_attr init = {
        .send_cq = of, .recv_cq = of, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct ibv_qp *made = ibv_create_qp(pd, &init);

    CHECK(made);
    to_init(made, &(struct pair_options){0});
    CHECK_EQ(ibv_modify_qp(made, &attr, IBV_QP_STATE), 0);
    return made;
}

static void complete(struct ibv_qp *of)
{
    struct ibv_recv_wr wr = {.wr_id = 1}, *bad;

    CHECK_EQ(ibv_post_recv(of, &wr, &bad), 0);
}

/* ---- the calls: each waits for an event, one raises it ------------------------------------- */

static int wait_for_completion(void)
{
    struct ibv_cq *got;
    void *got_context;
    int result = ibv_get_cq_event(channel, &got, &got_context);

    if (result == 0) {
        CHECK(got == cq && got_context == &cq);
        ibv_ack_cq_events(got, 1);
    }
    return result;
}

static void raise_completion(void)
{
    struct ibv_wc wc[4];

    CHECK(ibv_poll_cq(cq, 4, wc) >= 0);
    CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
    complete(qp);
}

static int close_completion(void)
{
    return close(channel->fd);
}

static int wait_for_async(void)
{
    struct ibv_async_event event;
    int result = ibv_get_async_event(context, &event);

    if (result == 0) {
        CHECK_EQ(event.event_type, IBV_EVENT_CQ_ERR);
        ibv_ack_async_event(&event);
    }
    return result;
}

static void raise_async(void)
{
    struct ibv_cq *small = ibv_create_cq(context, 1, NULL, NULL, 0);
    struct ibv_qp *of = make_flushed(small);

    for (int i = 0; i <= small->cqe; i++)
        complete(of);
    /* Left, for the event names it. */
    CHECK_EQ(ibv_destroy_qp(of), 0);
}

static int close_async(void)
{
    return close(context->async_fd);
}

static int wait_for_cm(void)
{
    struct rdma_cm_event *event;
    int result = rdma_get_cm_event(cm_channel, &event);

    if (result == 0) {
        CHECK_EQ(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
        CHECK_EQ(rdma_ack_cm_event(event), 0);
    }
    return result;
}

static void raise_cm(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    CHECK(id_count < 64);
    CHECK_EQ(rdma_create_id(cm_channel, &ids[id_count], NULL, RDMA_PS_TCP), 0);
    CHECK_EQ(rdma_resolve_addr(ids[id_count++], NULL, (struct sockaddr *)&to, 1000), 0);
}

static const struct call {
    const char *name;
    int (*wait)(void);
    void (*raise)(void);
    int (*close)(void);
} CALLS[] = {
    {"ibv_get_cq_event", wait_for_completion, raise_completion, close_completion},
    {"ibv_get_async_event", wait_for_async, raise_async, close_async},
    /* The descriptor of a channel of RDMA-CM is librdmacm's own, and what it says of it afterwards.
     */
    {"rdma_get_cm_event", wait_for_cm, raise_cm, NULL},
};

#endif
