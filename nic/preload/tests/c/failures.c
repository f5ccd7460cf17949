/* Errors on the wire: the right status at the requester, flushes after it, events at the responder.
 */
#include <fcntl.h>
#include <poll.h>

#include "urxe_test.h"

static struct ibv_async_event next_event(struct ibv_context *context)
{
    struct pollfd fd = {.fd = context->async_fd, .events = POLLIN};
    struct ibv_async_event event;

    CHECK_EQ(poll(&fd, 1, 60000), 1);
    CHECK_EQ(ibv_get_async_event(context, &event), 0);
    return event;
}

static void fail(struct pair *pair, struct ibv_send_wr *wr, enum ibv_wc_status status)
{
    struct ibv_send_wr *bad;
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    struct ibv_wc wc;

    CHECK_EQ(ibv_post_send(pair->left.qp, wr, &bad), 0);
    wc = next_completion(pair->left.cq, pair->right.cq);
    CHECK_EQ(wc.status, status);
    CHECK_EQ(wc.wr_id, wr->wr_id);
    /* The public state is the one last set or asked for: UCX asks for addresses after an error, and
     * goes on to post. */
    CHECK_EQ(ibv_query_qp(pair->left.qp, &attr, IBV_QP_AV | IBV_QP_DEST_QPN, &init), 0);
    CHECK_EQ(pair->left.qp->state, IBV_QPS_RTS);
    CHECK_EQ(ibv_query_qp(pair->left.qp, &attr, IBV_QP_STATE, &init), 0);
    CHECK_EQ(attr.qp_state, IBV_QPS_ERR);
    CHECK_EQ(pair->left.qp->state, IBV_QPS_ERR);
    /* What is posted from now on is flushed, in order. */
    wr->wr_id += 1;
    CHECK_EQ(ibv_post_send(pair->left.qp, wr, &bad), 0);
    wc = next_completion(pair->left.cq, NULL);
    CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQ(wc.wr_id, wr->wr_id);
    CHECK(ibv_wc_status_str(wc.status)[0]);
}

/* A WRITE where only READs are allowed, by the buffer or by the queue pair. */
static void check_remote_access(struct pair_options options, enum ibv_wc_status status,
                                enum ibv_event_type type)
{
    struct pair pair = make_pair(options);
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&pair.left, &sge, 1, IBV_WR_RDMA_WRITE, 64);
    struct ibv_async_event event;

    wr.wr.rdma.remote_addr = (uintptr_t)pair.right.buffer;
    wr.wr.rdma.rkey = pair.right.mr->rkey;
    fail(&pair, &wr, status);
    do { /* COMM_EST may come first */
        event = next_event(pair.context);
        if (event.event_type != IBV_EVENT_COMM_EST)
            CHECK(event.element.qp == pair.right.qp);
        ibv_ack_async_event(&event);
    } while (event.event_type == IBV_EVENT_COMM_EST);
    CHECK_EQ(event.event_type, type);
    CHECK_EQ(pair.right.buffer[0], 0);
    destroy_pair(&pair);
}

static void check_bad_key_and_bounds(void)
{
    for (int outside = 0; outside < 2; outside++) {
        struct pair pair = make_pair((struct pair_options){0});
        struct ibv_sge sge;
        struct ibv_send_wr wr = request(&pair.left, &sge, 1, IBV_WR_RDMA_READ, 64);

        wr.wr.rdma.remote_addr = (uintptr_t)pair.right.buffer + (outside ? BUFFER_BYTES - 63 : 0);
        wr.wr.rdma.rkey = pair.right.mr->rkey + !outside;
        fail(&pair, &wr, IBV_WC_REM_ACCESS_ERR);
        destroy_pair(&pair);
    }
}

static void check_local_protection(void)
{
    struct pair pair = make_pair((struct pair_options){0});
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&pair.left, &sge, 1, IBV_WR_SEND, 64);

    sge.lkey ^= 0x5555;
    post_receive(&pair.right, 2, 0, 64);
    fail(&pair, &wr, IBV_WC_LOC_PROT_ERR);
    destroy_pair(&pair);
}

static void check_receive_too_short(void)
{
    struct pair pair = make_pair((struct pair_options){0});
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&pair.left, &sge, 1, IBV_WR_SEND, 4096), *bad;
    struct ibv_wc wc;

    post_receive(&pair.right, 2, 0, 100);
    CHECK_EQ(ibv_post_send(pair.left.qp, &wr, &bad), 0);
    wc = next_completion(pair.right.cq, pair.left.cq);
    CHECK_EQ(wc.status, IBV_WC_LOC_LEN_ERR);
    CHECK_EQ(wc.wr_id, 2);
    wc = next_completion(pair.left.cq, pair.right.cq);
    CHECK_EQ(wc.status, IBV_WC_REM_INV_REQ_ERR);
    destroy_pair(&pair);
}

static void check_retries(void)
{
    struct pair deaf = make_pair((struct pair_options){.rnr_retry = 1});
    struct pair gone = make_pair((struct pair_options){.timeout = 8, .retry = 1});
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&deaf.left, &sge, 1, IBV_WR_SEND, 8);

    fail(&deaf, &wr, IBV_WC_RNR_RETRY_EXC_ERR); /* no receive is posted */
    wr = request(&gone.left, &sge, 1, IBV_WR_SEND, 8);
    CHECK_EQ(ibv_modify_qp(gone.right.qp, &error, IBV_QP_STATE), 0);
    fail(&gone, &wr, IBV_WC_RETRY_EXC_ERR);
    destroy_pair(&deaf);
    destroy_pair(&gone);
}

/* Receives are flushed when the queue pair is put into the error state, and after a reset it is as
 * new. */
static void check_flush_and_reset(void)
{
    struct pair pair = make_pair((struct pair_options){0});
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct pair_options options = {0};
    struct ibv_wc wc;

    for (int i = 0; i < 3; i++)
        post_receive(&pair.right, i, 0, 64);
    CHECK_EQ(ibv_modify_qp(pair.right.qp, &attr, IBV_QP_STATE), 0);
    for (int i = 0; i < 3; i++) {
        wc = next_completion(pair.right.cq, NULL);
        CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == (uint64_t)i);
    }
    attr.qp_state = IBV_QPS_RESET;
    CHECK_EQ(ibv_modify_qp(pair.right.qp, &attr, IBV_QP_STATE), 0);
    CHECK_EQ(pair.right.qp->state, IBV_QPS_RESET);
    to_init(pair.right.qp, &options);
    destroy_pair(&pair);
}

int main(void)
{
    struct ibv_context *context = open_loopback();
    struct ibv_async_event none;

    fcntl(context->async_fd, F_SETFL, O_NONBLOCK);
    errno = 0;
    CHECK_EQ(ibv_get_async_event(context, &none), -1);
    CHECK_EQ(errno, EAGAIN);
    CHECK_EQ(ibv_close_device(context), 0);
    check_remote_access((struct pair_options){.buffer_access = IBV_ACCESS_REMOTE_READ},
                        IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
    check_remote_access((struct pair_options){.qp_access = IBV_ACCESS_REMOTE_READ},
                        IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
    check_bad_key_and_bounds();
    check_local_protection();
    check_receive_too_short();
    check_retries();
    check_flush_and_reset();
    return 0;
}
