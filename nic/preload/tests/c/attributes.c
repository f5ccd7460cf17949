/* Attributes of queue pairs: what was set is what a query tells, in every state; what is wrong is
 * refused and changes nothing; what is flushed comes in order. */
#include "urxe_test.h"

static struct ibv_qp_attr queried(struct ibv_qp *qp)
{
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;

    memset(&attr, 0xff, sizeof(attr));
    memset(&init, 0xff, sizeof(init));
    CHECK_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &init), 0);
    CHECK_EQ(attr.qp_state, attr.cur_qp_state);
    CHECK_EQ(attr.qp_state, qp->state);
    CHECK(init.send_cq == qp->send_cq && init.recv_cq == qp->recv_cq && init.srq == qp->srq);
    CHECK(init.qp_context == qp->qp_context);
    CHECK_EQ(init.qp_type, IBV_QPT_RC);
    CHECK_EQ(init.sq_sig_all, 1);
    CHECK(!memcmp(&init.cap, &attr.cap, sizeof(init.cap)));
    CHECK(attr.cap.max_send_wr >= 8 && attr.cap.max_recv_wr >= 6 && attr.cap.max_send_sge >= 3);
    return attr;
}

static void check_init(struct ibv_qp *qp)
{
    enum { INIT = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS };
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
                               .port_num = 1,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE},
                       got = queried(qp);

    CHECK_EQ(got.qp_state, IBV_QPS_RESET);
    attr.port_num = 2;
    CHECK_EQ(ibv_modify_qp(qp, &attr, INIT), EINVAL);
    attr.port_num = 1;
    attr.pkey_index = 1;
    CHECK_EQ(ibv_modify_qp(qp, &attr, INIT), EINVAL);
    attr.pkey_index = 0;
    CHECK_EQ(ibv_modify_qp(qp, &attr, INIT & ~IBV_QP_PORT), EINVAL);
    CHECK_EQ(ibv_modify_qp(qp, &attr, INIT | IBV_QP_QKEY), EINVAL);
    CHECK_EQ(queried(qp).qp_state, IBV_QPS_RESET);
    CHECK_EQ(ibv_modify_qp(qp, &attr, INIT), 0);
    got = queried(qp);
    CHECK_EQ(got.qp_state, IBV_QPS_INIT);
    CHECK(got.port_num == 1 && got.pkey_index == 0);
    CHECK_EQ(got.qp_access_flags, IBV_ACCESS_REMOTE_WRITE);
}

static void check_rtr(struct ibv_qp *qp, union ibv_gid *gid)
{
    enum {
        RTR = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER
    };
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_2048,
        .dest_qp_num = qp->qp_num,
        .rq_psn = 0x123456,
        .max_dest_rd_atomic = 5,
        .min_rnr_timer = 12,
        .ah_attr =
            {.is_global = 1,
             .port_num = 1,
             .sl = 3,
             .grh = {.dgid = *gid, .hop_limit = 33, .traffic_class = 0x20, .flow_label = 77}},
    };
    struct ibv_qp_attr got;

    attr.path_mtu = 9;
    CHECK_EQ(ibv_modify_qp(qp, &attr, RTR), EINVAL);
    attr.path_mtu = IBV_MTU_2048;
    attr.ah_attr.grh.sgid_index = 60;
    CHECK_EQ(ibv_modify_qp(qp, &attr, RTR), EINVAL);
    attr.ah_attr.grh.sgid_index = 0;
    attr.min_rnr_timer = 32;
    CHECK_EQ(ibv_modify_qp(qp, &attr, RTR), EINVAL);
    attr.min_rnr_timer = 12;
    CHECK_EQ(queried(qp).qp_state, IBV_QPS_INIT);
    CHECK_EQ(ibv_modify_qp(qp, &attr, RTR), 0);
    got = queried(qp);
    CHECK_EQ(got.path_mtu, IBV_MTU_2048);
    CHECK_EQ(got.dest_qp_num, qp->qp_num);
    CHECK_EQ(got.rq_psn, 0x123456);
    CHECK(got.max_dest_rd_atomic == 5 && got.min_rnr_timer == 12);
    CHECK(got.ah_attr.is_global == 1 && got.ah_attr.port_num == 1 && got.ah_attr.sl == 3);
    CHECK(!memcmp(&got.ah_attr.grh.dgid, gid, sizeof(*gid)));
    CHECK(got.ah_attr.grh.hop_limit == 33 && got.ah_attr.grh.traffic_class == 0x20);
    CHECK_EQ(got.ah_attr.grh.flow_label, 77);
    CHECK_EQ(got.qp_access_flags, IBV_ACCESS_REMOTE_WRITE);
}

static void check_rts(struct ibv_qp *qp)
{
    enum {
        RTS = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
        IBV_QP_MAX_QP_RD_ATOMIC
    };
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
                               .timeout = 15,
                               .retry_cnt = 8,
                               .rnr_retry = 5,
                               .sq_psn = 0x654321,
                               .max_rd_atomic = 3,
                               .cur_qp_state = IBV_QPS_INIT};
    struct ibv_qp_attr got;

    CHECK_EQ(ibv_modify_qp(qp, &attr, RTS), EINVAL);
    attr.retry_cnt = 6;
    CHECK_EQ(ibv_modify_qp(qp, &attr, RTS | IBV_QP_CUR_STATE), EINVAL);
    attr.cur_qp_state = IBV_QPS_RTR;
    CHECK_EQ(ibv_modify_qp(qp, &attr, RTS | IBV_QP_CUR_STATE), 0);
    got = queried(qp);
    CHECK(got.timeout == 15 && got.retry_cnt == 6 && got.rnr_retry == 5);
    CHECK_EQ(got.sq_psn, 0x654321);
    CHECK_EQ(got.max_rd_atomic, 3);
    CHECK_EQ(got.path_mig_state, IBV_MIG_MIGRATED);
    attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_ACCESS_FLAGS), 0);
    CHECK_EQ(queried(qp).qp_access_flags, IBV_ACCESS_REMOTE_READ);
}

/* What is set of a queue pair on its way to RTS is what a query tells. */
static void check_query(struct ibv_qp *qp, union ibv_gid *gid)
{
    check_init(qp);
    check_rtr(qp, gid);
    check_rts(qp);
}

/* Receives and sends are flushed in the order of their queue, when the queue pair fails and later.
 */
static void check_flush(struct ibv_qp *qp)
{
    struct ibv_recv_wr receive = {.num_sge = 0}, *bad_receive;
    struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad_send;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD};
    uint64_t next_send = 100, next_receive = 0;

    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    CHECK_EQ(queried(qp).qp_state, IBV_QPS_SQD);
    for (int i = 0; i < 4; i++) {
        send.wr_id = 100 + i; /* waits, since the queue drains */
        CHECK_EQ(ibv_post_send(qp, &send, &bad_send), 0);
        receive.wr_id = i;
        CHECK_EQ(ibv_post_recv(qp, &receive, &bad_receive), 0);
    }
    attr.qp_state = IBV_QPS_ERR;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    send.wr_id = 104;
    CHECK_EQ(ibv_post_send(qp, &send, &bad_send), 0);
    receive.wr_id = 4;
    CHECK_EQ(ibv_post_recv(qp, &receive, &bad_receive), 0);
    for (int i = 0; i < 10; i++) {
        struct ibv_wc wc = next_completion(qp->send_cq, NULL);

        CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
        CHECK_EQ(wc.qp_num, qp->qp_num);
        if (wc.wr_id >= 100)
            CHECK_EQ(wc.wr_id, next_send++);
        else
            CHECK_EQ(wc.wr_id, next_receive++);
    }
    CHECK(next_send == 105 && next_receive == 5);
    CHECK_EQ(queried(qp).qp_state, IBV_QPS_ERR);
    attr.qp_state = IBV_QPS_RTS;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
    attr.qp_state = IBV_QPS_RESET;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    CHECK_EQ(queried(qp).qp_state, IBV_QPS_RESET);
}

int main(void)
{
    struct ibv_context *context = open_loopback();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 32, NULL, NULL, 0);
    struct ibv_qp_init_attr init = {.send_cq = cq,
                                    .recv_cq = cq,
                                    .qp_context = &init,
                                    .cap = {8, 6, 3, 2, 40},
                                    .qp_type = IBV_QPT_RC,
                                    .sq_sig_all = 1};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    union ibv_gid gid;

    CHECK(qp && qp->qp_context == &init);
    CHECK(init.cap.max_send_wr >= 8 && init.cap.max_inline_data >= 40);
    CHECK_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
    for (int again = 0; again < 2; again++) { /* a queue pair that was reset is as good as new */
        check_query(qp, &gid);
        check_flush(qp);
    }
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_destroy_cq(cq), 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    CHECK_EQ(ibv_close_device(context), 0);
    return 0;
}
