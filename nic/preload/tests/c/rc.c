/* Reliable connections through ibv_post_send, ibv_post_recv and ibv_poll_cq. */
#include "urxe_test.h"

static void fill(unsigned char *buffer, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++)
        buffer[i] = (unsigned char)(i * 31 + i / 251 + seed);
}

static struct ibv_wc succeed(struct side *side, struct side *other, uint64_t wr_id,
                             enum ibv_wc_opcode opcode)
{
    struct ibv_wc wc = next_completion(side->cq, other->cq);

    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.wr_id, wr_id);
    CHECK_EQ(wc.opcode, opcode);
    CHECK_EQ(wc.qp_num, side->qp->qp_num);
    return wc;
}

static void post(struct side *side, struct ibv_send_wr *wr)
{
    struct ibv_send_wr *bad;

    CHECK_EQ(ibv_post_send(side->qp, wr, &bad), 0);
}

static void check_send(struct pair *pair)
{
    const uint32_t lengths[] = {0, 1, 4, 1023, 1024, 1025, 4096, 65536, 300001};
    struct ibv_sge sge;
    struct ibv_wc wc;

    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        struct ibv_send_wr wr = request(&pair->left, &sge, 100 + i, IBV_WR_SEND, lengths[i]);

        fill(pair->left.buffer, lengths[i], i);
        memset(pair->right.buffer, 0, BUFFER_BYTES);
        post_receive(&pair->right, 200 + i, 0, BUFFER_BYTES);
        post(&pair->left, &wr);
        wc = succeed(&pair->right, &pair->left, 200 + i, IBV_WC_RECV);
        CHECK_EQ(wc.byte_len, lengths[i]);
        CHECK_EQ(wc.wc_flags, IBV_WC_GRH);
        CHECK(!memcmp(pair->left.buffer, pair->right.buffer, lengths[i]));
        CHECK_EQ(pair->right.buffer[lengths[i]], 0);
        succeed(&pair->left, &pair->right, 100 + i, IBV_WC_SEND);
    }
}

static void check_immediate_and_inline(struct pair *pair)
{
    struct ibv_sge pieces[2] = {{(uintptr_t)"inline, no key", 6, 0}, {(uintptr_t)" data", 5, 0}};
    struct ibv_send_wr wr = {.wr_id = 1,
                             .sg_list = pieces,
                             .num_sge = 2,
                             .opcode = IBV_WR_SEND_WITH_IMM,
                             .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
                             .imm_data = 0x12345678};
    struct ibv_wc wc;

    post_receive(&pair->right, 2, 0, 64);
    post(&pair->left, &wr);
    wc = succeed(&pair->right, &pair->left, 2, IBV_WC_RECV);
    CHECK_EQ(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
    CHECK_EQ(wc.imm_data, 0x12345678);
    CHECK(!memcmp(pair->right.buffer, "inline data", 11));
    succeed(&pair->left, &pair->right, 1, IBV_WC_SEND);
}

static void check_write_and_read(struct pair *pair)
{
    const uint32_t length = 100000;
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&pair->left, &sge, 10, IBV_WR_RDMA_WRITE, length);
    struct ibv_wc wc;

    fill(pair->left.buffer, length, 7);
    memset(pair->right.buffer, 0, BUFFER_BYTES);
    wr.wr.rdma.remote_addr = (uintptr_t)pair->right.buffer + 3;
    wr.wr.rdma.rkey = pair->right.mr->rkey;
    post(&pair->left, &wr);
    succeed(&pair->left, &pair->right, 10, IBV_WC_RDMA_WRITE);
    CHECK(!memcmp(pair->left.buffer, pair->right.buffer + 3, length));
    CHECK(!pair->right.buffer[2] && !pair->right.buffer[length + 3]);

    post_receive(&pair->right, 11, 0, 0);
    wr.wr_id = 12;
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr.imm_data = 0xcafe;
    post(&pair->left, &wr);
    wc = succeed(&pair->right, &pair->left, 11, IBV_WC_RECV_RDMA_WITH_IMM);
    CHECK_EQ(wc.byte_len, length);
    CHECK_EQ(wc.imm_data, 0xcafe);
    succeed(&pair->left, &pair->right, 12, IBV_WC_RDMA_WRITE);

    memset(pair->left.buffer, 0, length);
    wr.wr_id = 13;
    wr.opcode = IBV_WR_RDMA_READ;
    post(&pair->left, &wr);
    wc = succeed(&pair->left, &pair->right, 13, IBV_WC_RDMA_READ);
    CHECK_EQ(wc.byte_len, length);
    CHECK(!memcmp(pair->left.buffer, pair->right.buffer + 3, length));
}

static void check_atomics(struct pair *pair)
{
    uint64_t *remote = (uint64_t *)pair->right.buffer, *result = (uint64_t *)pair->left.buffer;
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&pair->left, &sge, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, 8);

    *remote = 40;
    wr.wr.atomic.remote_addr = (uintptr_t)remote;
    wr.wr.atomic.rkey = pair->right.mr->rkey;
    wr.wr.atomic.compare_add = 2;
    post(&pair->left, &wr);
    succeed(&pair->left, &pair->right, 1, IBV_WC_FETCH_ADD);
    CHECK_EQ(*result, 40);
    CHECK_EQ(*remote, 42);
    wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    wr.wr.atomic.compare_add = 42;
    wr.wr.atomic.swap = 1000;
    post(&pair->left, &wr);
    succeed(&pair->left, &pair->right, 1, IBV_WC_COMP_SWAP);
    CHECK_EQ(*result, 42);
    CHECK_EQ(*remote, 1000);
    post(&pair->left, &wr); /* no longer equal */
    succeed(&pair->left, &pair->right, 1, IBV_WC_COMP_SWAP);
    CHECK_EQ(*result, 1000);
    CHECK_EQ(*remote, 1000);
}

/* A list of requests, of which only the last asks for a completion; scattered at the other end. */
static void check_lists(struct pair *pair)
{
    struct ibv_sge from[2] = {{(uintptr_t)pair->left.buffer, 700, pair->left.mr->lkey},
                              {(uintptr_t)pair->left.buffer + 5000, 800, pair->left.mr->lkey}};
    struct ibv_sge to[2] = {{(uintptr_t)pair->right.buffer, 1, pair->right.mr->lkey},
                            {(uintptr_t)pair->right.buffer + 9000, 1499, pair->right.mr->lkey}};
    struct ibv_send_wr wr[3] = {0};
    struct ibv_recv_wr receive[3] = {0}, *bad;
    struct ibv_wc wc[8];
    int got = 0;

    for (int i = 0; i < 3; i++) {
        wr[i] = (struct ibv_send_wr){.wr_id = i,
                                     .next = i < 2 ? &wr[i + 1] : NULL,
                                     .sg_list = from,
                                     .num_sge = 2,
                                     .opcode = IBV_WR_SEND};
        receive[i] = (struct ibv_recv_wr){
            .wr_id = 50 + i, .next = i < 2 ? &receive[i + 1] : NULL, .sg_list = to, .num_sge = 2};
    }
    wr[2].send_flags = IBV_SEND_SIGNALED;
    fill(pair->left.buffer, 8192, 3);
    CHECK_EQ(ibv_post_recv(pair->right.qp, receive, &bad), 0);
    post(&pair->left, wr);
    succeed(&pair->left, &pair->right, 2, IBV_WC_SEND);
    for (double start = seconds(); got < 3 && seconds() - start < 60;)
        got += ibv_poll_cq(pair->right.cq, 8 - got, wc + got);
    CHECK_EQ(got, 3);
    for (int i = 0; i < 3; i++)
        CHECK(wc[i].wr_id == 50u + i && wc[i].byte_len == 1500 && wc[i].status == IBV_WC_SUCCESS);
    CHECK_EQ(pair->right.buffer[0], pair->left.buffer[0]);
    CHECK(!memcmp(pair->right.buffer + 9000, pair->left.buffer + 1, 699));
    CHECK(!memcmp(pair->right.buffer + 9699, pair->left.buffer + 5000, 800));
}

/* A region that is registered again has new rights and new bounds, and the old keys are dead. */
static void check_register_again(struct pair *pair)
{
    static unsigned char other[64];
    struct ibv_mr *mr = ibv_reg_mr(pair->pd, other, 16, 0);
    struct ibv_pd *pd = ibv_alloc_pd(pair->context);
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&pair->left, &sge, 1, IBV_WR_RDMA_WRITE, 64);
    uint32_t old_rkey;

    CHECK(mr && pd);
    old_rkey = mr->rkey;
    CHECK_EQ(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_CMD);
    CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
    CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE),
             IBV_REREG_MR_ERR_CMD);
    CHECK_EQ(mr->rkey, old_rkey);
    CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0), 0);
    CHECK(mr->pd == pd && mr->length == 16);
    CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
    CHECK_EQ(ibv_rereg_mr(mr,
                          IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS |
                              IBV_REREG_MR_CHANGE_TRANSLATION,
                          pair->pd, other, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
             0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    CHECK(mr->length == 64 && mr->rkey == old_rkey);
    fill(pair->left.buffer, 64, 9);
    wr.wr.rdma.remote_addr = (uintptr_t)other;
    wr.wr.rdma.rkey = mr->rkey;
    post(&pair->left, &wr);
    succeed(&pair->left, &pair->right, 1, IBV_WC_RDMA_WRITE);
    CHECK(!memcmp(other, pair->left.buffer, 64));
    CHECK_EQ(ibv_dereg_mr(mr), 0);
}

static void check_query(struct pair *pair)
{
    struct ibv_qp_init_attr init;
    struct ibv_qp_attr attr;

    CHECK_EQ(ibv_query_qp(pair->left.qp, &attr, IBV_QP_STATE | IBV_QP_AV, &init), 0);
    CHECK_EQ(attr.qp_state, IBV_QPS_RTS);
    CHECK_EQ(attr.cur_qp_state, IBV_QPS_RTS);
    CHECK_EQ(attr.path_mtu, IBV_MTU_1024);
    CHECK_EQ(attr.dest_qp_num, pair->right.qp->qp_num);
    CHECK_EQ(attr.qp_access_flags, ALL_REMOTE);
    CHECK_EQ(attr.timeout, 14);
    CHECK_EQ(attr.retry_cnt, 7);
    CHECK_EQ(attr.max_rd_atomic, 4);
    CHECK_EQ(attr.ah_attr.is_global, 1);
    CHECK(!memcmp(attr.ah_attr.grh.dgid.raw, pair->gid.raw, 16));
    CHECK(attr.cap.max_send_wr >= DEPTH && init.cap.max_send_wr == attr.cap.max_send_wr);
    CHECK(init.send_cq == pair->left.cq && init.qp_type == IBV_QPT_RC);
}

/* A list need not be where a structure of its kind would be: programs have it in packed ones. */
static void check_unaligned_list(struct pair *pair)
{
    char bytes[sizeof(struct ibv_sge) + 1];
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&pair->left, &sge, 77, IBV_WR_RDMA_WRITE, 8), *bad;

    memcpy(bytes + 1, &sge, sizeof(sge));
    wr.sg_list = (void *)(bytes + 1);
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = (uintptr_t)pair->right.buffer;
    wr.wr.rdma.rkey = pair->right.mr->rkey;
    CHECK_EQ(ibv_post_send(pair->left.qp, &wr, &bad), 0);
    CHECK_EQ(next_completion(pair->left.cq, pair->right.cq).status, IBV_WC_SUCCESS);
}

int main(void)
{
    struct pair pair = make_pair((struct pair_options){0});

    check_query(&pair);
    check_send(&pair);
    check_immediate_and_inline(&pair);
    check_write_and_read(&pair);
    check_atomics(&pair);
    check_lists(&pair);
    check_unaligned_list(&pair);
    check_register_again(&pair);
    destroy_pair(&pair);
    return 0;
}
