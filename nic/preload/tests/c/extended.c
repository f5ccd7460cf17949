/* The extended interfaces: ibv_wr_* for posting, ibv_start_poll for polling. */
#include <pthread.h>

#include "urxe_test.h"

enum {
    SEND_OPS = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |
        IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
};

static void expect(struct side *side, struct side *other, uint64_t wr_id, enum ibv_wc_opcode opcode)
{
    struct ibv_wc wc = next_completion(side->cq, other->cq);

    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.wr_id, wr_id);
    CHECK_EQ(wc.opcode, opcode);
}

/* Several requests of one batch go out together and in order. */
static void check_batch(struct pair *pair, struct ibv_qp_ex *qp)
{
    struct ibv_data_buf pieces[] = {{"one ", 4}, {"two", 3}};
    uint64_t remote = (uintptr_t)pair->right.buffer;
    uint32_t rkey = pair->right.mr->rkey, lkey = pair->left.mr->lkey;
    struct ibv_sge sges[] = {{(uintptr_t)pair->left.buffer, 4, lkey},
                             {(uintptr_t)pair->left.buffer + 100, 4, lkey}};

    memcpy(pair->left.buffer, "abcd", 4);
    memcpy(pair->left.buffer + 100, "efgh", 4);
    post_receive(&pair->right, 90, 1000, 64);
    post_receive(&pair->right, 91, 2000, 64);
    ibv_wr_start(qp);
    qp->wr_id = 1;
    qp->wr_flags = 0;
    ibv_wr_rdma_write(qp, rkey, remote);
    ibv_wr_set_sge_list(qp, 2, sges);
    qp->wr_id = 2;
    ibv_wr_rdma_write(qp, rkey, remote + 8);
    ibv_wr_set_inline_data(qp, "inline", 6);
    qp->wr_id = 3;
    ibv_wr_send(qp);
    ibv_wr_set_inline_data_list(qp, 2, pieces);
    qp->wr_id = 4;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send_imm(qp, 0xbeef);
    ibv_wr_set_sge(qp, lkey, (uintptr_t)pair->left.buffer, 4);
    CHECK_EQ(ibv_wr_complete(qp), 0);
    expect(&pair->left, &pair->right, 4, IBV_WC_SEND);
    expect(&pair->right, &pair->left, 90, IBV_WC_RECV);
    expect(&pair->right, &pair->left, 91, IBV_WC_RECV);
    CHECK(!memcmp(pair->right.buffer, "abcdefghinline", 14));
    CHECK(!memcmp(pair->right.buffer + 1000, "one two", 7));
    CHECK(!memcmp(pair->right.buffer + 2000, "abcd", 4));
}

static void check_fetching(struct pair *pair, struct ibv_qp_ex *qp)
{
    uint64_t *remote = (uint64_t *)pair->right.buffer, *result = (uint64_t *)pair->left.buffer;
    uint32_t rkey = pair->right.mr->rkey, lkey = pair->left.mr->lkey;

    remote[0] = 5;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_start(qp);
    qp->wr_id = 1;
    ibv_wr_atomic_fetch_add(qp, rkey, (uintptr_t)remote, 3);
    ibv_wr_set_sge(qp, lkey, (uintptr_t)&result[0], 8);
    qp->wr_id = 2;
    ibv_wr_atomic_cmp_swp(qp, rkey, (uintptr_t)remote, 8, 11);
    ibv_wr_set_sge(qp, lkey, (uintptr_t)&result[1], 8);
    qp->wr_id = 3;
    ibv_wr_rdma_read(qp, rkey, (uintptr_t)remote);
    ibv_wr_set_sge(qp, lkey, (uintptr_t)&result[2], 8);
    CHECK_EQ(ibv_wr_complete(qp), 0);
    expect(&pair->left, &pair->right, 1, IBV_WC_FETCH_ADD);
    expect(&pair->left, &pair->right, 2, IBV_WC_COMP_SWAP);
    expect(&pair->left, &pair->right, 3, IBV_WC_RDMA_READ);
    CHECK(result[0] == 5 && result[1] == 8 && result[2] == 11);
}

/* What is aborted is not posted, and a mistake in a batch is told by complete. */
static void check_abort(struct pair *pair, struct ibv_qp_ex *qp)
{
    struct ibv_sge too_many[64] = {0};
    struct ibv_wc wc;

    memset(pair->right.buffer, 0, 64);
    ibv_wr_start(qp);
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(qp, pair->right.mr->rkey, (uintptr_t)pair->right.buffer);
    ibv_wr_set_inline_data(qp, "no", 2);
    ibv_wr_abort(qp);
    ibv_wr_start(qp);
    CHECK_EQ(ibv_wr_complete(qp), 0); /* an empty batch */
    ibv_wr_start(qp);
    ibv_wr_rdma_write(qp, pair->right.mr->rkey, (uintptr_t)pair->right.buffer);
    ibv_wr_set_sge_list(qp, 64, too_many);
    CHECK_EQ(ibv_wr_complete(qp), EINVAL);
    ibv_wr_start(qp);
    ibv_wr_set_inline_data(qp, "data of nothing", 4);
    CHECK_EQ(ibv_wr_complete(qp), EINVAL);
    for (int i = 0; i < 100; i++)
        CHECK_EQ(ibv_poll_cq(pair->left.cq, 1, &wc), 0);
    CHECK_EQ(pair->right.buffer[0], 0);
}

/* Two threads build requests at once: each batch stays whole. */
static void *send_batches(void *argument)
{
    struct ibv_qp_ex *qp = argument;

    for (int i = 0; i < 200; i++) {
        ibv_wr_start(qp);
        for (int k = 0; k < 2; k++) {
            qp->wr_id = 1000 + k;
            qp->wr_flags = k ? IBV_SEND_SIGNALED : 0;
            ibv_wr_rdma_write(qp, 0, 0);
            ibv_wr_set_inline_data(qp, NULL, 0);
        }
        ibv_wr_abort(qp);
    }
    return NULL;
}

static void check_threads(struct ibv_qp_ex *qp)
{
    pthread_t threads[2];

    for (int i = 0; i < 2; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, send_batches, qp), 0);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

static struct ibv_cq_ex *extended_queue(struct ibv_context *context)
{
    struct ibv_cq_init_attr_ex attr = {.cqe = 8, .wc_flags = IBV_WC_STANDARD_FLAGS};
    struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &attr);

    CHECK(cq);
    return cq;
}

/* A queue pair connected to itself, with an extended completion queue. */
static void check_extended_queue(struct pair *pair)
{
    struct ibv_cq_ex *cq = extended_queue(pair->context);
    struct ibv_poll_cq_attr attr = {0};
    struct ibv_qp_init_attr init = {.send_cq = ibv_cq_ex_to_cq(cq),
                                    .recv_cq = ibv_cq_ex_to_cq(cq),
                                    .cap = {4, 4, 1, 1, 64},
                                    .qp_type = IBV_QPT_RC,
                                    .sq_sig_all = 1};
    struct pair_options options = {0};
    struct side self = pair->left;
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&self, &sge, 5, IBV_WR_SEND_WITH_IMM, 16), *bad;
    int seen = 0, result = 0;

    CHECK(self.qp = ibv_create_qp(pair->pd, &init));
    to_init(self.qp, &options);
    to_ready_to_receive(self.qp, &pair->gid, self.qp->qp_num);
    to_ready_to_send(self.qp, &options);
    attr.comp_mask = 1;
    CHECK_EQ(ibv_start_poll(cq, &attr), EINVAL);
    attr.comp_mask = 0;
    CHECK_EQ(ibv_start_poll(cq, &attr), ENOENT);
    post_receive(&self, 6, 512, 64);
    wr.imm_data = 0x1234;
    wr.send_flags = 0; /* all are signaled */
    CHECK_EQ(ibv_post_send(self.qp, &wr, &bad), 0);
    for (double start = seconds(); seen != 3 && seconds() - start < 60;) {
        if (ibv_start_poll(cq, &attr))
            continue;
        do {
            CHECK_EQ(cq->status, IBV_WC_SUCCESS);
            CHECK_EQ(ibv_wc_read_qp_num(cq), self.qp->qp_num);
            CHECK_EQ(ibv_wc_read_vendor_err(cq), 0);
            if (cq->wr_id == 5) {
                CHECK_EQ(ibv_wc_read_opcode(cq), IBV_WC_SEND);
                seen |= 1;
            } else {
                CHECK_EQ(cq->wr_id, 6);
                CHECK_EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
                CHECK_EQ(ibv_wc_read_byte_len(cq), 16);
                CHECK_EQ(ibv_wc_read_wc_flags(cq), IBV_WC_GRH | IBV_WC_WITH_IMM);
                CHECK_EQ(ibv_wc_read_imm_data(cq), 0x1234);
                seen |= 2;
            }
            result = ibv_next_poll(cq);
        } while (!result);
        CHECK_EQ(result, ENOENT);
        ibv_end_poll(cq);
    }
    CHECK_EQ(seen, 3);
    CHECK_EQ(ibv_destroy_qp(self.qp), 0);
    CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

int main(void)
{
    struct pair pair = make_pair((struct pair_options){.send_ops = SEND_OPS});
    struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(pair.left.qp);

    CHECK(qp && qp->wr_send);
    check_batch(&pair, qp);
    check_fetching(&pair, qp);
    check_abort(&pair, qp);
    check_threads(qp);
    check_batch(&pair, qp);
    check_extended_queue(&pair);
    destroy_pair(&pair);
    return 0;
}
