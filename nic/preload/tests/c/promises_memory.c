/* What the manual pages promise about memory: flags, the life of a key,
 * what is atomic, windows, advice, and what belongs together. */
#include <pthread.h>

#include "urxe_test.h"

enum { BYTES = 8192, ACCESS = IBV_ACCESS_LOCAL_WRITE | ALL_REMOTE };

/* The status of a request of the left side. */
static enum ibv_wc_status status_of(struct pair *pair, enum ibv_wr_opcode opcode,
                                    struct ibv_sge local, uint64_t remote, uint32_t rkey)
{
    struct ibv_send_wr wr = {.wr_id = 7,
                             .sg_list = &local,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {remote, rkey}},
                       *bad;

    CHECK_EQ(ibv_post_send(pair->left.qp, &wr, &bad), 0);
    return next_completion(pair->left.cq, pair->right.cq).status;
}

static struct ibv_sge left(struct pair *pair, uint32_t length)
{
    return (struct ibv_sge){(uintptr_t)pair->left.buffer, length, pair->left.mr->lkey};
}

/* Rights that peers have need the program's own; flags that may be ignored are no error, others
 * that are unknown are. */
static void check_flags(struct ibv_pd *pd)
{
    static char memory[BYTES];
    const int refused[] = {IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC,
                           IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ, 1 << 18};
    const int taken[] = {0, IBV_ACCESS_REMOTE_READ, ACCESS | IBV_ACCESS_MW_BIND,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING,
                         IBV_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_OPTIONAL_LAST};
    struct ibv_mr *mr, *again;

    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
        errno = 0;
        CHECK(!ibv_reg_mr(pd, memory, BYTES, refused[i]));
        CHECK_EQ(errno, EINVAL);
    }
    for (size_t i = 0; i < sizeof(taken) / sizeof(*taken); i++) {
        CHECK((mr = ibv_reg_mr(pd, memory, BYTES, taken[i])) != NULL);
        CHECK(mr->addr == memory && mr->length == BYTES && mr->pd == pd);
        CHECK(mr->context == pd->context);
        /* The same memory may be registered any number of times, each time with keys of its own. */
        CHECK((again = ibv_reg_mr(pd, memory, BYTES, taken[i])) != NULL);
        CHECK(again->lkey != mr->lkey && again->rkey != mr->rkey);
        CHECK_EQ(ibv_dereg_mr(again), 0);
        CHECK_EQ(ibv_dereg_mr(mr), 0);
    }
}

/* A key opens nothing once its region is gone, to neither end, and only what it was given for. */
static void check_keys(void)
{
    static char memory[BYTES];
    const struct {
        int access;
        enum ibv_wr_opcode opcode;
        bool is_remote; /* else the local element */
        enum ibv_wc_status status;
    } cases[] = {
        {ACCESS, IBV_WR_RDMA_WRITE, true, IBV_WC_REM_ACCESS_ERR},
        {ACCESS, IBV_WR_RDMA_READ, true, IBV_WC_REM_ACCESS_ERR},
        {ACCESS, IBV_WR_RDMA_WRITE, false, IBV_WC_LOC_PROT_ERR},
        {IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_READ, false, IBV_WC_LOC_PROT_ERR},
        {0, IBV_WR_RDMA_WRITE, false, IBV_WC_SUCCESS}, /* this host may always read */
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct pair pair = make_pair((struct pair_options){0});
        struct ibv_mr *mr = ibv_reg_mr(pair.pd, memory, BYTES, cases[i].access);
        struct ibv_sge own = {(uintptr_t)memory, 8, mr->lkey};
        bool is_gone = cases[i].access == ACCESS;
        uint32_t rkey = mr->rkey;

        if (is_gone)
            CHECK_EQ(ibv_dereg_mr(mr), 0);
        CHECK_EQ(cases[i].is_remote
                     ? status_of(&pair, cases[i].opcode, left(&pair, 8), (uintptr_t)memory, rkey)
                     : status_of(&pair, cases[i].opcode, own, (uintptr_t)pair.right.buffer,
                                 pair.right.mr->rkey),
                 cases[i].status);
        if (!is_gone)
            CHECK_EQ(ibv_dereg_mr(mr), 0);
        destroy_pair(&pair);
    }
}

enum { ADDS = 200 };

static void *add_one_by_one(void *argument)
{
    struct pair *pair = argument;

    for (int i = 0; i < ADDS; i++) {
        struct ibv_sge sge = left(pair, 8);
        struct ibv_send_wr wr = {.sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                                 .send_flags = IBV_SEND_SIGNALED},
                           *bad;
        struct ibv_wc wc;

        wr.wr.atomic.remote_addr = (uintptr_t)pair->right.mr->addr;
        wr.wr.atomic.rkey = pair->right.mr->rkey;
        wr.wr.atomic.compare_add = 1;
        CHECK_EQ(ibv_post_send(pair->left.qp, &wr, &bad), 0);
        wc = next_completion(pair->left.cq, pair->right.cq);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        CHECK_EQ(wc.opcode, IBV_WC_FETCH_ADD);
        CHECK_EQ(wc.byte_len, 8);
    }
    return NULL;
}

/* The device promises IBV_ATOMIC_HCA: through whichever queue pairs of a device, no addition is
 * lost. */
static void check_atomics(void)
{
    struct pair pair = make_pair((struct pair_options){0});
    struct pair_options options = {0};
    struct pair second = pair;
    struct side *sides[] = {&second.left, &second.right};
    struct ibv_device_attr device;
    pthread_t threads[2];

    CHECK_EQ(ibv_query_device(pair.context, &device), 0);
    CHECK_EQ(device.atomic_cap, IBV_ATOMIC_HCA);
    for (int i = 0; i < 2; i++)
        make_side(&second, sides[i], &options);
    for (int i = 0; i < 2; i++) {
        to_init(sides[i]->qp, &options);
        to_ready_to_receive(sides[i]->qp, &second.gid, sides[!i]->qp->qp_num);
        to_ready_to_send(sides[i]->qp, &options);
    }
    CHECK_EQ(ibv_dereg_mr(second.right.mr), 0);
    second.right.mr = pair.right.mr; /* one place for both */
    CHECK_EQ(pthread_create(&threads[0], NULL, add_one_by_one, &pair), 0);
    CHECK_EQ(pthread_create(&threads[1], NULL, add_one_by_one, &second), 0);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK_EQ(*(uint64_t *)pair.right.buffer, 2 * ADDS);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(ibv_destroy_qp(sides[i]->qp), 0);
        CHECK_EQ(ibv_destroy_cq(sides[i]->cq), 0);
        free(sides[i]->buffer);
    }
    CHECK_EQ(ibv_dereg_mr(second.left.mr), 0);
    destroy_pair(&pair);
}

/* Windows: a bind that is refused leaves the key; a region stays while one is bound to it; the key
 * may be sent behind the bind, since the send queue keeps the order. */
static void check_windows(void)
{
    struct pair pair = make_pair((struct pair_options){0});
    struct ibv_mr *mr =
        ibv_reg_mr(pair.pd, pair.right.buffer, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    struct ibv_mw *mw = ibv_alloc_mw(pair.pd, IBV_MW_TYPE_1);
    struct ibv_mw_bind bind = {
        .wr_id = 1,
        .send_flags = IBV_SEND_SIGNALED,
        .bind_info = {mr, (uintptr_t)pair.right.buffer, 64, IBV_ACCESS_REMOTE_WRITE}};
    struct ibv_qp_init_attr init = {
        .send_cq = pair.left.cq, .recv_cq = pair.left.cq, .qp_type = IBV_QPT_UD};
    struct ibv_qp *datagrams = ibv_create_qp(pair.pd, &init);
    uint32_t rkey = mw->rkey;

    CHECK(mr && mw && datagrams);
    CHECK(mw->pd == pair.pd && mw->context == pair.context && mw->type == IBV_MW_TYPE_1);
    CHECK_EQ(ibv_bind_mw(datagrams, mw, &bind), EINVAL);
    bind.bind_info.mw_access_flags = 1 << 19;
    CHECK_EQ(ibv_bind_mw(pair.right.qp, mw, &bind), EINVAL);
    CHECK_EQ(mw->rkey, rkey);
    bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
    CHECK_EQ(ibv_dealloc_pd(pair.pd), EBUSY);
    CHECK_EQ(ibv_bind_mw(pair.right.qp, mw, &bind), 0);
    CHECK(mw->rkey != rkey);
    CHECK_EQ(mw->rkey >> 8, rkey >> 8);
    /* Unsignaled, and a message right behind it, which tells the peer. */
    *(uint32_t *)pair.right.buffer = 0;
    post_receive(&pair.left, 2, 0, 8);
    {
        struct ibv_sge sge = {(uintptr_t)&mw->rkey, 4, 0};
        struct ibv_send_wr wr = {.wr_id = 3,
                                 .sg_list = &sge,
                                 .num_sge = 1,
                                 .opcode = IBV_WR_SEND,
                                 .send_flags = IBV_SEND_INLINE},
                           *bad;

        CHECK_EQ(ibv_post_send(pair.right.qp, &wr, &bad), 0);
    }
    CHECK_EQ(next_completion(pair.left.cq, pair.right.cq).wr_id, 2);
    memcpy(&rkey, pair.left.buffer, 4);
    CHECK_EQ(rkey, mw->rkey);
    CHECK_EQ(status_of(&pair, IBV_WR_RDMA_WRITE, left(&pair, 8), (uintptr_t)pair.right.buffer + 56,
                       rkey),
             IBV_WC_SUCCESS);
    CHECK_EQ(next_completion(pair.right.cq, pair.left.cq).opcode, IBV_WC_BIND_MW);
    CHECK_EQ(ibv_dereg_mr(mr), EBUSY);
    CHECK_EQ(ibv_dealloc_mw(mw), 0); /* which ends the binding */
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(ibv_destroy_qp(datagrams), 0);
    destroy_pair(&pair);
}

/* The errors of advice, as its page lists them. */
static void check_advice(struct ibv_pd *pd)
{
    static char memory[BYTES];
    struct ibv_pd *other = ibv_alloc_pd(pd->context);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, BYTES, IBV_ACCESS_ON_DEMAND);
    struct ibv_sge sge = {(uintptr_t)memory, BYTES, mr->lkey};

    CHECK(other && mr);
    CHECK_EQ(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), 0);
    CHECK_EQ(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 1 << 5, &sge, 1), EINVAL);
    CHECK_EQ(ibv_advise_mr(other, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), EPERM);
    sge.length++;
    CHECK_EQ(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), EFAULT);
    sge.length--;
    CHECK_EQ(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, &sge, 1), EPERM);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(ibv_dealloc_pd(other), 0);
}

/* Whatever is in a domain, alone, keeps it in use. */
static void check_users(struct ibv_context *context)
{
    static char memory[BYTES];
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
    struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD};
    struct ibv_srq_init_attr shared = {.attr = {1, 1, 0}};
    struct ibv_ah_attr to = {.is_global = 1, .port_num = 1};
    struct ibv_srq *srq;
    struct ibv_mr *mr;
    struct ibv_mw *mw;
    struct ibv_ah *ah;
    struct ibv_qp *qp;

    CHECK(pd && cq);
    CHECK_EQ(ibv_query_gid(context, 1, 0, &to.grh.dgid), 0);
    CHECK((mr = ibv_reg_mr(pd, memory, BYTES, 0)) != NULL);
    CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK((mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2)) != NULL);
    CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
    CHECK_EQ(ibv_dealloc_mw(mw), 0);
    CHECK((ah = ibv_create_ah(pd, &to)) != NULL);
    CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
    CHECK_EQ(ibv_destroy_ah(ah), 0);
    CHECK((srq = ibv_create_srq(pd, &shared)) != NULL);
    CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
    CHECK_EQ(ibv_destroy_srq(srq), 0);
    CHECK((qp = ibv_create_qp(pd, &init)) != NULL);
    CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
    CHECK_EQ(ibv_destroy_cq(cq), EBUSY);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    CHECK_EQ(ibv_destroy_cq(cq), 0);
}

/* Objects of two openings of a device do not mix, and each opening has its own. */
static void check_openings(struct ibv_context *context, struct ibv_pd *pd)
{
    struct ibv_context *other = open_loopback();
    struct ibv_cq *cq = ibv_create_cq(other, 4, NULL, NULL, 0), *own;
    struct ibv_comp_channel *channel = ibv_create_comp_channel(other);
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};

    CHECK(other != context && other->device == context->device);
    CHECK(other->async_fd != context->async_fd);
    errno = 0;
    CHECK(!ibv_create_qp(pd, &init) && errno == EINVAL);
    errno = 0;
    CHECK(!ibv_create_cq(context, 4, NULL, channel, 0) && errno == EINVAL);
    CHECK((own = ibv_create_cq(context, 4, NULL, NULL, 0)) != NULL);
    init.send_cq = own;
    errno = 0;
    CHECK(!ibv_create_qp(pd, &init) && errno == EINVAL);
    CHECK_EQ(ibv_destroy_cq(own), 0);
    CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
    CHECK_EQ(ibv_destroy_cq(cq), 0);
    CHECK_EQ(ibv_close_device(other), 0);
}

int main(void)
{
    struct ibv_context *context = open_loopback();
    struct ibv_pd *pd = ibv_alloc_pd(context);

    CHECK(pd && pd->context == context);
    check_flags(pd);
    check_advice(pd);
    check_openings(context, pd);
    check_users(context);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    CHECK_EQ(ibv_close_device(context), 0);
    check_keys();
    check_atomics();
    check_windows();
    return 0;
}
