/* Datagrams and multicast. */
#include "transports.h"

enum { GRH = 40, QKEY = 0x11111111 };

static struct ibv_qp *make_datagram_qp(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_srq *srq)
{
    struct ibv_qp_init_attr_ex init = {
        .send_cq = cq,
        .recv_cq = cq,
        .srq = srq,
        .cap = {8, srq ? 0 : 8, 2, 2, 64},
        .qp_type = IBV_QPT_UD,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = pd,
        .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
    };
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
    struct ibv_qp *qp = ibv_create_qp_ex(pd->context, &init);

    CHECK(qp);
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
             0);
    attr.qp_state = IBV_QPS_RTR;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_RTS;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    return qp;
}

/* A message to `qpn` by an address handle, with immediate data. */
static int send_datagram(struct ibv_qp *qp, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey,
                         struct ibv_sge *sge)
{
    struct ibv_send_wr wr = {.wr_id = 5,
                             .sg_list = sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND_WITH_IMM,
                             .send_flags = IBV_SEND_SIGNALED,
                             .imm_data = htobe32(0xabcd),
                             .wr.ud = {ah, qpn, qkey}},
                       *bad;

    return ibv_post_send(qp, &wr, &bad);
}

/* "inline" through the extended interface. */
static void send_extended(struct ibv_qp *qp, struct ibv_ah *ah, uint32_t peer)
{
    struct ibv_qp_ex *extended = ibv_qp_to_qp_ex(qp);

    ibv_wr_start(extended);
    extended->wr_id = 5;
    extended->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(extended);
    ibv_wr_set_ud_addr(extended, ah, peer, QKEY);
    ibv_wr_set_inline_data(extended, "inline", 7);
    CHECK_EQ(ibv_wr_complete(extended), 0);
}

/* There, and back to where the completion says that it came from. */
static void check_datagrams(struct ibv_context *context, struct ibv_pd *pd, union ibv_gid *gid)
{
    static char memory[8192];
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
    struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_cq *other_cq = ibv_create_cq(context, 16, NULL, NULL, 0);
    struct ibv_qp *qp = make_datagram_qp(pd, cq, NULL),
                  *other = make_datagram_qp(pd, other_cq, NULL);
    struct ibv_ah_attr attr = {
        .is_global = 1, .port_num = 1, .grh = {.dgid = *gid, .hop_limit = 64, .traffic_class = 8}};
    struct ibv_ah_attr answer;
    struct ibv_ah *ah, *back;
    struct ibv_sge out = {(uintptr_t)memory, 8, mr->lkey},
                   huge = {(uintptr_t)memory, 8192, mr->lkey};
    struct ibv_sge in = {(uintptr_t)memory + 1000, GRH + 8, mr->lkey};
    struct ibv_sge second = {(uintptr_t)memory + 2000, GRH + 64, mr->lkey};
    struct ibv_wc wc;

    CHECK((ah = ibv_create_ah(pd, &attr)) != NULL);
    CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
    strcpy(memory, "hello ");
    receive_at(other, 1, &in);
    CHECK_EQ(send_datagram(qp, ah, other->qp_num, QKEY, &out), 0);
    CHECK_EQ(take(cq, 5).opcode, IBV_WC_SEND);
    wc = take(other_cq, 1);
    CHECK_EQ(wc.byte_len, GRH + 8);
    CHECK_EQ(wc.src_qp, qp->qp_num);
    CHECK_EQ(wc.sl, 2); /* IPv4, as mlx5 has it */
    CHECK_EQ(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
    CHECK_EQ(wc.imm_data, htobe32(0xabcd));
    CHECK(!strcmp(memory + 1000 + GRH, "hello "));
    CHECK_EQ(ibv_init_ah_from_wc(context, 1, &wc, (void *)(memory + 1000), &answer), 0);
    CHECK(!memcmp(&answer.grh.dgid, gid, sizeof(*gid)) && answer.grh.sgid_index == 0);
    CHECK_EQ(answer.grh.traffic_class & 0xfc, 8); /* The ECN field of the packet comes with it. */
    CHECK_EQ(ibv_init_ah_from_wc(context, 2, &wc, (void *)(memory + 1000), &answer), -1);
    CHECK((back = ibv_create_ah_from_wc(pd, &wc, (void *)(memory + 1000), 1)) != NULL);
    receive_at(qp, 2, &second);
    CHECK_EQ(send_datagram(other, back, wc.src_qp, QKEY, &out), 0);
    take(other_cq, 5);
    take(cq, 2);
    receive_at(other, 3, &in);
    send_extended(qp, ah, other->qp_num);
    take(cq, 5);
    CHECK_EQ(take(other_cq, 3).byte_len, GRH + 7);
    CHECK(!strcmp(memory + 1000 + GRH, "inline"));
    /* A wrong Q_Key is dropped; the next message takes the receive. */
    receive_at(other, 4, &in);
    CHECK_EQ(send_datagram(qp, ah, other->qp_num, QKEY + 1, &out), 0);
    take(cq, 5);
    CHECK_EQ(send_datagram(qp, ah, other->qp_num, QKEY, &out), 0);
    take(cq, 5);
    take(other_cq, 4);
    CHECK_EQ(ibv_poll_cq(other_cq, 1, &wc), 0);
    CHECK_EQ(send_datagram(qp, ah, other->qp_num, QKEY, &huge), EINVAL);
    CHECK_EQ(send_datagram(qp, NULL, other->qp_num, QKEY, &out), EINVAL);
    attr.port_num = 2;
    CHECK(!ibv_create_ah(pd, &attr) && errno == EINVAL);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
    CHECK_EQ(ibv_destroy_ah(back), 0);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_destroy_qp(other), 0);
    CHECK_EQ(ibv_destroy_cq(cq), 0);
    CHECK_EQ(ibv_destroy_cq(other_cq), 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
}

static void check_multicast(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_qp *qp = make_datagram_qp(pd, cq, NULL);
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    struct ibv_qp *connected = ibv_create_qp(pd, &init);
    union ibv_gid group = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 239, [15] = 7}};
    union ibv_gid single = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};

    CHECK_EQ(context->num_comp_vectors, 1);
    CHECK_EQ(ibv_attach_mcast(qp, &group, 0), 0);
    CHECK_EQ(ibv_attach_mcast(qp, &group, 0), 0);
    CHECK_EQ(ibv_attach_mcast(qp, &single, 0), EINVAL);
    CHECK_EQ(ibv_attach_mcast(connected, &group, 0), EINVAL);
    CHECK_EQ(ibv_detach_mcast(qp, &group, 0), 0);
    CHECK_EQ(ibv_detach_mcast(qp, &group, 0), EINVAL);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_destroy_qp(connected), 0);
}

int main(void)
{
    struct ibv_context *context = open_loopback();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 32, NULL, NULL, 0);
    union ibv_gid gid;

    CHECK_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
    check_datagrams(context, pd, &gid);
    check_multicast(context, pd, cq);
    CHECK_EQ(ibv_destroy_cq(cq), 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    CHECK_EQ(ibv_close_device(context), 0);
    return 0;
}
