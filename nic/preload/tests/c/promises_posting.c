/* What the manual pages promise about posting: what a list of requests
 * leaves behind when one is refused, what completes without being signaled, and what a request may
 * count on. */
#include "urxe_test.h"

/* Of a list, what stands before the request that is refused is executed, and nothing after it. */
static void check_lists(struct pair *pair)
{
    struct ibv_sge sge[3];
    struct ibv_send_wr wr[3], *bad = NULL;
    struct ibv_recv_wr receive[3] = {{0}}, *bad_receive = NULL;
    struct ibv_wc wc;

    for (int i = 0; i < 3; i++) {
        wr[i] = request(&pair->left, &sge[i], 10 + i, IBV_WR_SEND, 8);
        wr[i].next = i < 2 ? &wr[i + 1] : NULL;
        receive[i].wr_id = 20 + i;
        receive[i].sg_list = &sge[i];
        receive[i].num_sge = i == 1 ? 1000 : 0;
        receive[i].next = i < 2 ? &receive[i + 1] : NULL;
    }
    wr[1].num_sge = 1000;
    CHECK_EQ(ibv_post_recv(pair->right.qp, receive, &bad_receive), EINVAL);
    CHECK(bad_receive == &receive[1]);
    sge[0].length = 0; /* for the receive of no bytes */
    CHECK_EQ(ibv_post_send(pair->left.qp, wr, &bad), EINVAL);
    CHECK(bad == &wr[1]);
    wc = next_completion(pair->right.cq, pair->left.cq);
    CHECK(wc.wr_id == 20 && wc.status == IBV_WC_SUCCESS);
    wc = next_completion(pair->left.cq, pair->right.cq);
    CHECK(wc.wr_id == 10 && wc.status == IBV_WC_SUCCESS);
    for (int i = 0; i < 100; i++) {
        CHECK_EQ(ibv_poll_cq(pair->left.cq, 1, &wc), 0);
        CHECK_EQ(ibv_poll_cq(pair->right.cq, 1, &wc), 0);
    }
}

/* Inline data is the program's again as soon as the call returns. */
static void check_inline(struct pair *pair)
{
    char text[8] = "inline";
    struct ibv_sge sge = {(uintptr_t)text, sizeof(text), 0x7777 /* is not looked at */};
    struct ibv_send_wr wr = {.wr_id = 1,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
                             .wr.rdma = {(uintptr_t)pair->right.buffer, pair->right.mr->rkey}},
                       *bad;

    for (int i = 0; i < 8; i++) {
        text[0] = 'a' + i;
        wr.wr.rdma.remote_addr = (uintptr_t)pair->right.buffer + 8 * i;
        CHECK_EQ(ibv_post_send(pair->left.qp, &wr, &bad), 0);
    }
    memset(text, 0, sizeof(text));
    for (int i = 0; i < 8; i++)
        CHECK_EQ(next_completion(pair->left.cq, pair->right.cq).status, IBV_WC_SUCCESS);
    for (int i = 0; i < 8; i++)
        CHECK(pair->right.buffer[8 * i] == 'a' + i && pair->right.buffer[8 * i + 1] == 'n');
}

/* A fenced message carries what a READ before it brought. */
static void check_fence(struct pair *pair)
{
    enum { BYTES = 100000 };
    struct ibv_sge sge[2];
    struct ibv_send_wr wr[2] = {request(&pair->left, &sge[0], 1, IBV_WR_RDMA_READ, BYTES),
                                request(&pair->left, &sge[1], 2, IBV_WR_SEND, BYTES)},
                       *bad;

    for (int i = 1; i < 10; i++) {
        memset(pair->left.buffer, 0, BYTES);
        memset(pair->right.buffer, i, BYTES);
        post_receive(&pair->right, 3, BYTES, BYTES);
        wr[0].wr.rdma.remote_addr = (uintptr_t)pair->right.buffer;
        wr[0].wr.rdma.rkey = pair->right.mr->rkey;
        wr[0].next = &wr[1];
        wr[1].send_flags |= IBV_SEND_FENCE;
        CHECK_EQ(ibv_post_send(pair->left.qp, wr, &bad), 0);
        CHECK_EQ(next_completion(pair->right.cq, pair->left.cq).status, IBV_WC_SUCCESS);
        for (int k = 0; k < 2; k++)
            CHECK_EQ(next_completion(pair->left.cq, pair->right.cq).wr_id, k + 1);
        for (int k = 0; k < BYTES; k++)
            CHECK_EQ(pair->right.buffer[BYTES + k], i);
    }
}

/* Of no bytes, neither key nor address of the peer is looked at, nor is a right needed. */
static void check_no_bytes(struct pair *pair)
{
    const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
    struct ibv_send_wr *bad;

    for (int i = 0; i < 2; i++) {
        struct ibv_send_wr wr = {.wr_id = 30 + i,
                                 .opcode = opcodes[i],
                                 .send_flags = IBV_SEND_SIGNALED,
                                 .wr.rdma = {0xdead0000, 0xbad}};
        struct ibv_wc wc;

        CHECK_EQ(ibv_post_send(pair->left.qp, &wr, &bad), 0);
        wc = next_completion(pair->left.cq, pair->right.cq);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        CHECK_EQ(wc.wr_id, 30 + i);
    }
}

/* What a type of queue pair does not have is refused at once, and so are requests that cannot be
 * built. */
static void check_refused(struct pair *pair)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&pair->left, &sge, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, 4), *bad;

    wr.wr.atomic.remote_addr = (uintptr_t)pair->right.buffer;
    wr.wr.atomic.rkey = pair->right.mr->rkey;
    CHECK_EQ(ibv_post_send(pair->left.qp, &wr, &bad), EINVAL); /* 8 bytes, and no others */
    wr = request(&pair->left, &sge, 1, IBV_WR_RDMA_READ, 8);
    wr.send_flags |= IBV_SEND_INLINE;
    CHECK_EQ(ibv_post_send(pair->left.qp, &wr, &bad), EINVAL);
    CHECK(bad == &wr);
}

/* A batch of the extended interface that does not fit is aborted as a whole. */
static void check_whole_batches(void)
{
    struct pair pair = make_pair((struct pair_options){.send_ops = IBV_QP_EX_WITH_RDMA_WRITE});
    struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(pair.left.qp);
    struct ibv_sge sges[5] = {{0}}; /* one more than the queue pair has */
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;
    char byte = 'y';
    struct ibv_wc wc;

    CHECK_EQ(ibv_query_qp(pair.left.qp, &attr, IBV_QP_CAP, &init), 0);
    CHECK_EQ(attr.cap.max_send_sge, 4);
    ibv_wr_start(qp);
    qp->wr_flags = IBV_SEND_SIGNALED;
    for (uint32_t i = 0; i <= attr.cap.max_send_wr; i++) {
        ibv_wr_rdma_write(qp, pair.right.mr->rkey, (uintptr_t)pair.right.buffer);
        ibv_wr_set_inline_data(qp, "x", 1);
    }
    CHECK_EQ(ibv_wr_complete(qp), ENOMEM);
    for (int i = 0; i < 100; i++)
        CHECK_EQ(ibv_poll_cq(pair.left.cq, 1, &wc), 0);
    CHECK_EQ(pair.right.buffer[0], 0);
    /* What stands before a request that is wrong is not posted either. */
    ibv_wr_start(qp);
    ibv_wr_rdma_write(qp, pair.right.mr->rkey, (uintptr_t)pair.right.buffer);
    ibv_wr_set_inline_data(qp, "x", 1);
    ibv_wr_rdma_write(qp, pair.right.mr->rkey, (uintptr_t)pair.right.buffer);
    ibv_wr_set_sge_list(qp, 5, sges);
    CHECK_EQ(ibv_wr_complete(qp), EINVAL);
    for (int i = 0; i < 100; i++)
        CHECK_EQ(ibv_poll_cq(pair.left.cq, 1, &wc), 0);
    CHECK_EQ(pair.right.buffer[0], 0);
    /* Inline data is read by its setter. */
    ibv_wr_start(qp);
    ibv_wr_rdma_write(qp, pair.right.mr->rkey, (uintptr_t)pair.right.buffer);
    ibv_wr_set_inline_data(qp, &byte, 1);
    byte = 'z';
    CHECK_EQ(ibv_wr_complete(qp), 0);
    CHECK_EQ(next_completion(pair.left.cq, pair.right.cq).status, IBV_WC_SUCCESS);
    CHECK_EQ(pair.right.buffer[0], 'y');
    destroy_pair(&pair);
}

/* What fails completes, signaled or not, and what was posted behind it is flushed in order. */
static void check_unsignaled_failure(void)
{
    struct pair pair = make_pair((struct pair_options){0});
    struct ibv_sge sge[4];
    struct ibv_send_wr wr[4], *bad;
    struct ibv_wc wc;

    for (int i = 0; i < 4; i++) {
        wr[i] = request(&pair.left, &sge[i], i, IBV_WR_RDMA_WRITE, 8);
        wr[i].send_flags = 0;
        wr[i].next = i < 3 ? &wr[i + 1] : NULL;
        wr[i].wr.rdma.remote_addr = (uintptr_t)pair.right.buffer;
        wr[i].wr.rdma.rkey = pair.right.mr->rkey + (i == 1);
    }
    CHECK_EQ(ibv_post_send(pair.left.qp, wr, &bad), 0);
    for (int i = 1; i < 4; i++) {
        wc = next_completion(pair.left.cq, pair.right.cq);
        CHECK_EQ(wc.wr_id, i);
        CHECK_EQ(wc.status, i == 1 ? IBV_WC_REM_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR);
        CHECK_EQ(wc.qp_num, pair.left.qp->qp_num);
    }
    destroy_pair(&pair);
}

/* A queue pair that is reset or destroyed leaves no completion behind. */
static void check_cleaned(void)
{
    for (int destroys = 0; destroys < 2; destroys++) {
        struct pair pair = make_pair((struct pair_options){0});
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
        struct ibv_qp_init_attr init = {
            .send_cq = pair.right.cq, .recv_cq = pair.right.cq, .qp_type = IBV_QPT_RC};
        struct ibv_wc wc;

        for (int i = 0; i < 3; i++)
            post_receive(&pair.right, i, 0, 64);
        CHECK_EQ(ibv_modify_qp(pair.right.qp, &attr, IBV_QP_STATE), 0);
        if (destroys) {
            CHECK_EQ(ibv_destroy_qp(pair.right.qp), 0);
            CHECK(pair.right.qp = ibv_create_qp(pair.pd, &init));
        } else {
            attr.qp_state = IBV_QPS_RESET;
            CHECK_EQ(ibv_modify_qp(pair.right.qp, &attr, IBV_QP_STATE), 0);
        }
        CHECK_EQ(ibv_poll_cq(pair.right.cq, 1, &wc), 0);
        destroy_pair(&pair);
    }
}

/* A program that has seen a message may end at once: the peer still learns that it arrived. */
static void check_last_acknowledgement(void)
{
    struct pair pair = make_pair((struct pair_options){0});
    struct ibv_qp_init_attr init = {
        .send_cq = pair.right.cq, .recv_cq = pair.right.cq, .qp_type = IBV_QPT_RC};
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&pair.left, &sge, 1, IBV_WR_SEND, 8), *bad;

    post_receive(&pair.right, 2, 0, 64);
    CHECK_EQ(ibv_post_send(pair.left.qp, &wr, &bad), 0);
    CHECK_EQ(next_completion(pair.right.cq, NULL).wr_id, 2);
    CHECK_EQ(ibv_destroy_qp(pair.right.qp), 0);
    CHECK_EQ(next_completion(pair.left.cq, NULL).status, IBV_WC_SUCCESS);
    CHECK(pair.right.qp = ibv_create_qp(pair.pd, &init));
    destroy_pair(&pair);
}

int main(void)
{
    struct pair pair = make_pair((struct pair_options){0});

    check_lists(&pair);
    check_inline(&pair);
    check_fence(&pair);
    check_no_bytes(&pair);
    check_refused(&pair);
    destroy_pair(&pair);
    check_whole_batches();
    check_unsignaled_failure();
    check_cleaned();
    check_last_acknowledgement();
    return 0;
}
