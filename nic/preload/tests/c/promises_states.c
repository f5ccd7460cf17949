/* What the manual pages promise about queue pairs and their states:
 * which attributes each transition needs, what a refusal leaves as it was, what is granted. */
#include "urxe_test.h"

enum {
    TO_INIT = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT,
    CONNECTS = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
    SENDS = IBV_QP_STATE | IBV_QP_SQ_PSN,
};

/* What a transition needs, for one type of queue pair. */
struct step {
    enum ibv_qp_state to;
    int rc, uc, ud;
};

static const struct step STEPS[] = {
    {IBV_QPS_INIT, TO_INIT | IBV_QP_ACCESS_FLAGS, TO_INIT | IBV_QP_ACCESS_FLAGS,
     TO_INIT | IBV_QP_QKEY},
    {IBV_QPS_RTR, CONNECTS | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER, CONNECTS,
     IBV_QP_STATE},
    {IBV_QPS_RTS,
     SENDS | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC, SENDS,
     SENDS},
};

static int needed(const struct step *step, enum ibv_qp_type type)
{
    return type == IBV_QPT_RC ? step->rc : type == IBV_QPT_UC ? step->uc : step->ud;
}

static struct ibv_qp_attr attributes(enum ibv_qp_state to, const union ibv_gid *gid, uint32_t peer)
{
    return (struct ibv_qp_attr){
        .qp_state = to,
        .port_num = 1,
        .qkey = 0x1234,
        .qp_access_flags = ALL_REMOTE,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer,
        .rq_psn = 5,
        .sq_psn = 5,
        .max_dest_rd_atomic = 1,
        .max_rd_atomic = 1,
        .min_rnr_timer = 12,
        .timeout = 14,
        .retry_cnt = 7,
        .rnr_retry = 7,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = *gid, .hop_limit = 64}},
    };
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;

    CHECK_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
    return attr.qp_state;
}

/* Each attribute that a transition needs is missed, and while one is missing nothing changes. */
static void check_required_attributes(struct ibv_pd *pd, struct ibv_cq *cq,
                                      const union ibv_gid *gid)
{
    const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};

    for (size_t k = 0; k < sizeof(types) / sizeof(*types); k++) {
        struct ibv_qp_init_attr init = {
            .send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = types[k]};
        struct ibv_qp *qp = ibv_create_qp(pd, &init);

        CHECK(qp);
        for (size_t i = 0; i < sizeof(STEPS) / sizeof(*STEPS); i++) {
            struct ibv_qp_attr attr = attributes(STEPS[i].to, gid, qp->qp_num);
            enum ibv_qp_state before = state_of(qp);
            int mask = needed(&STEPS[i], types[k]);

            for (int bit = IBV_QP_STATE << 1; bit <= mask; bit <<= 1) {
                if (!(mask & bit))
                    continue;
                CHECK_EQ(ibv_modify_qp(qp, &attr, mask & ~bit), EINVAL);
                CHECK_EQ(state_of(qp), before);
                CHECK_EQ(qp->state, before);
            }
            CHECK_EQ(ibv_modify_qp(qp, &attr, mask), 0);
            CHECK_EQ(qp->state, STEPS[i].to);
        }
        CHECK_EQ(ibv_destroy_qp(qp), 0);
    }
}

/* A wrong attribute beside a right one: neither is set. Values above what the device has, and masks
 * that go with no transition, are wrong. */
static void check_nothing_changes(struct pair *pair)
{
    struct ibv_qp *qp = pair->left.qp;
    struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_READ, .min_rnr_timer = 77},
                       found;
    struct ibv_device_attr device;
    struct ibv_qp_init_attr init;

    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER), EINVAL);
    CHECK_EQ(ibv_query_qp(qp, &found, IBV_QP_ACCESS_FLAGS, &init), 0);
    CHECK_EQ(found.qp_access_flags, ALL_REMOTE);
    CHECK_EQ(found.min_rnr_timer, 1);
    attr = (struct ibv_qp_attr){.cap = {100, 100, 1, 1, 0}}; /* queue pairs cannot be resized */
    CHECK_EQ(ibv_query_device(pair->context, &device), 0);
    CHECK(!(device.device_cap_flags & IBV_DEVICE_RESIZE_MAX_WR));
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_CAP), EINVAL);
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_RATE_LIMIT), EINVAL);
    CHECK_EQ(state_of(qp), IBV_QPS_RTS);
    /* An alternate path is taken, as by Linux rxe, and has no effect. */
    CHECK(!(device.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG));
    attr = (struct ibv_qp_attr){.alt_port_num = 1, .alt_timeout = 9};
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_ALT_PATH), 0);
    CHECK_EQ(ibv_query_qp(qp, &found, IBV_QP_ALT_PATH, &init), 0);
    CHECK(found.alt_port_num == 0 && found.alt_timeout == 0);
    CHECK_EQ(found.timeout, 14);
    /* The ends take no attribute with them. */
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_ERR, .pkey_index = 7, .port_num = 9};
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT), EINVAL);
    CHECK_EQ(state_of(qp), IBV_QPS_RTS);
    attr.qp_state = IBV_QPS_RESET;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), EINVAL);
    CHECK_EQ(state_of(qp), IBV_QPS_RTS);
}

static void check_rd_atomic_limit(struct ibv_pd *pd, struct ibv_cq *cq, const union ibv_gid *gid)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    struct ibv_device_attr device;
    struct ibv_qp_attr attr;

    CHECK(qp);
    CHECK_EQ(ibv_query_device(pd->context, &device), 0);
    to_init(qp, &(struct pair_options){0});
    attr = attributes(IBV_QPS_RTR, gid, qp->qp_num);
    attr.max_dest_rd_atomic = device.max_qp_rd_atom + 1;
    CHECK_EQ(ibv_modify_qp(qp, &attr, STEPS[1].rc), EINVAL);
    attr.max_dest_rd_atomic = device.max_qp_rd_atom;
    CHECK_EQ(ibv_modify_qp(qp, &attr, STEPS[1].rc), 0);
    attr = attributes(IBV_QPS_RTS, gid, qp->qp_num);
    attr.max_rd_atomic = device.max_qp_init_rd_atom + 1;
    CHECK_EQ(ibv_modify_qp(qp, &attr, STEPS[2].rc), EINVAL);
    attr.max_rd_atomic = device.max_qp_init_rd_atom;
    CHECK_EQ(ibv_modify_qp(qp, &attr, STEPS[2].rc), 0);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
}

/* A Q_Key with its highest bit set stands for that of the queue pair, and a datagram of no bytes is
 * its route header. What fails here stops a datagram queue pair until it is put into RTS again. */
static void check_datagrams(struct ibv_pd *pd, struct ibv_cq *cq, const union ibv_gid *gid)
{
    enum { GRH = 40 };
    static char memory[GRH];
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, GRH, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_UD};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.dgid = *gid, .hop_limit = 64}};
    struct ibv_ah *ah = ibv_create_ah(pd, &to);
    struct ibv_sge in = {(uintptr_t)memory, GRH, mr->lkey}, wrong = {(uintptr_t)memory, 8, 0xbad};
    struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &in, .num_sge = 1}, *bad_receive;
    struct ibv_send_wr send = {.wr_id = 2, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED},
                       *bad_send;
    struct ibv_qp_attr attr;
    struct ibv_wc wc;

    CHECK(mr && qp && ah);
    for (int i = 0; i < 3; i++) {
        attr = attributes(STEPS[i].to, gid, 0);
        CHECK_EQ(ibv_modify_qp(qp, &attr, STEPS[i].ud), 0);
    }
    attr.qkey = 0x5678;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_QKEY), 0);
    CHECK_EQ(ibv_query_qp(qp, &attr, IBV_QP_QKEY, &init), 0);
    CHECK_EQ(attr.qkey, 0x5678);
    send.wr.ud.ah = ah;
    send.wr.ud.remote_qpn = qp->qp_num;
    send.wr.ud.remote_qkey = 0x80000001;
    CHECK_EQ(ibv_post_recv(qp, &receive, &bad_receive), 0);
    CHECK_EQ(ibv_post_send(qp, &send, &bad_send), 0);
    for (int i = 0; i < 2; i++) {
        wc = next_completion(cq, NULL);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        if (wc.wr_id == 1)
            CHECK_EQ(wc.byte_len, GRH);
    }
    send.sg_list = &wrong;
    send.num_sge = 1;
    CHECK_EQ(ibv_post_send(qp, &send, &bad_send), 0);
    CHECK_EQ(next_completion(cq, NULL).status, IBV_WC_LOC_PROT_ERR);
    CHECK_EQ(state_of(qp), IBV_QPS_SQE);
    CHECK_EQ(ibv_post_send(qp, &send, &bad_send), 0);
    CHECK_EQ(next_completion(cq, NULL).status, IBV_WC_WR_FLUSH_ERR);
    attr.qp_state = IBV_QPS_RTS;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
}

/* In which states what may be posted. */
static void check_states(struct ibv_pd *pd, struct ibv_cq *cq, const union ibv_gid *gid)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad_send;
    struct ibv_recv_wr receive = {.wr_id = 1}, *bad_receive;

    CHECK(qp);
    CHECK_EQ(ibv_post_recv(qp, &receive, &bad_receive), EINVAL);
    to_init(qp, &(struct pair_options){0});
    CHECK_EQ(ibv_post_recv(qp, &receive, &bad_receive), 0);
    CHECK_EQ(ibv_post_send(qp, &send, &bad_send), EINVAL);
    CHECK(bad_send == &send);
    to_ready_to_receive(qp, gid, qp->qp_num);
    CHECK_EQ(ibv_post_recv(qp, &receive, &bad_receive), 0);
    CHECK_EQ(ibv_post_send(qp, &send, &bad_send), EINVAL);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
}

/* A send queue drains as long as something that was begun is not finished. */
static void check_draining(void)
{
    struct pair pair = make_pair((struct pair_options){0});
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD};
    struct ibv_qp_init_attr init;
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&pair.left, &sge, 1, IBV_WR_SEND, 8), *bad;

    CHECK_EQ(ibv_post_send(pair.left.qp, &wr, &bad), 0); /* waits for a receive */
    CHECK_EQ(ibv_modify_qp(pair.left.qp, &attr, IBV_QP_STATE), 0);
    CHECK_EQ(ibv_query_qp(pair.left.qp, &attr, IBV_QP_STATE, &init), 0);
    CHECK_EQ(attr.qp_state, IBV_QPS_SQD);
    CHECK_EQ(attr.sq_draining, 1);
    post_receive(&pair.right, 2, 0, 64);
    CHECK_EQ(next_completion(pair.left.cq, pair.right.cq).status, IBV_WC_SUCCESS);
    CHECK_EQ(ibv_query_qp(pair.left.qp, &attr, IBV_QP_STATE, &init), 0);
    CHECK_EQ(attr.qp_state, IBV_QPS_SQD);
    CHECK_EQ(attr.sq_draining, 0);
    attr.qp_state = IBV_QPS_RTS;
    CHECK_EQ(ibv_modify_qp(pair.left.qp, &attr, IBV_QP_STATE), 0);
    destroy_pair(&pair);
}

/* Sizes: what is granted is at least what was asked for; with a shared queue, those of receives are
 * not looked at. */
static void check_sizes(struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_srq_init_attr shared = {.attr = {4, 1, 0}};
    struct ibv_srq *srq = ibv_create_srq(pd, &shared);
    struct ibv_device_attr device;
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .cap = {5, 6, 2, 3, 20}, .qp_type = IBV_QPT_RC};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    struct ibv_qp_init_attr_ex flagged = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {1, 1, 1, 1, 0},
        .qp_type = IBV_QPT_UD,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
        .pd = pd,
        .create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB,
    };

    CHECK(srq && qp);
    CHECK(init.cap.max_send_wr >= 5 && init.cap.max_recv_wr >= 6 && init.cap.max_send_sge >= 2 &&
          init.cap.max_recv_sge >= 3 && init.cap.max_inline_data >= 20);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_query_device(pd->context, &device), 0);
    for (int i = 0; i < 5; i++) {
        const uint32_t beyond[] = {device.max_qp_wr + 1, device.max_qp_wr + 1, device.max_sge + 1,
                                   device.max_sge + 1, 1 << 20};
        uint32_t *cap;

        init.cap = (struct ibv_qp_cap){1, 1, 1, 1, 0};
        cap = &init.cap.max_send_wr;
        cap[i] = beyond[i];
        errno = 0;
        CHECK(!ibv_create_qp(pd, &init));
        CHECK_EQ(errno, EINVAL);
    }
    init.srq = srq;
    init.cap = (struct ibv_qp_cap){1, ~0u, 1, ~0u, 0};
    CHECK((qp = ibv_create_qp(pd, &init)) != NULL);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_destroy_srq(srq), 0);
    errno = 0;
    CHECK(!ibv_create_qp_ex(pd->context, &flagged) && errno == EOPNOTSUPP);
}

int main(void)
{
    struct pair pair = make_pair((struct pair_options){0});
    struct ibv_cq *cq = ibv_create_cq(pair.context, 64, NULL, NULL, 0);

    CHECK(cq);
    check_required_attributes(pair.pd, cq, &pair.gid);
    check_rd_atomic_limit(pair.pd, cq, &pair.gid);
    check_states(pair.pd, cq, &pair.gid);
    check_datagrams(pair.pd, cq, &pair.gid);
    check_sizes(pair.pd, cq);
    check_nothing_changes(&pair);
    CHECK_EQ(ibv_destroy_cq(cq), 0);
    destroy_pair(&pair);
    check_draining();
    return 0;
}
