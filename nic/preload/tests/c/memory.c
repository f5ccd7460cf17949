/* Every kind of memory region and domain, each used by a transfer. */
#include <unistd.h>

#include "apart.h"

enum { BYTES = 4096 };

/* The completion of a request over one element of the left side. */
static struct ibv_wc transfer(struct pair *pair, enum ibv_wr_opcode opcode, struct ibv_sge local,
                              uint64_t remote, uint32_t rkey)
{
    struct ibv_send_wr wr = {.wr_id = 7,
                             .sg_list = &local,
                             .num_sge = 1,
                             .opcode = opcode,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {remote, rkey}},
                       *bad;

    CHECK_EQ(ibv_post_send(pair->left.qp, &wr, &bad), 0);
    return next_completion(pair->left.cq, pair->right.cq);
}

static void succeeds(struct ibv_wc wc)
{
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.wr_id, 7);
}

/* Writes to and reads from `mr`, whose first byte peers call `remote` and the program finds at
 * `bytes` (if it can). */
static void use_remotely(struct pair *pair, struct ibv_mr *mr, uint64_t remote, const char *bytes)
{
    uint64_t local = (uintptr_t)pair->left.buffer;
    uint32_t lkey = pair->left.mr->lkey;

    strcpy((char *)pair->left.buffer, "written");
    succeeds(transfer(pair, IBV_WR_RDMA_WRITE, (struct ibv_sge){local, 8, lkey}, remote, mr->rkey));
    if (bytes)
        CHECK(!strcmp(bytes, "written"));
    succeeds(
        transfer(pair, IBV_WR_RDMA_READ, (struct ibv_sge){local + 100, 8, lkey}, remote, mr->rkey));
    CHECK(!strcmp((char *)pair->left.buffer + 100, "written"));
}

static void check_addressing(struct pair *pair)
{
    enum { ACCESS = IBV_ACCESS_LOCAL_WRITE | ALL_REMOTE };
    static char memory[BYTES], other[BYTES];
    struct ibv_context *elsewhere = open_loopback();
    struct ibv_pd *pd = ibv_alloc_pd(pair->context), *foreign = ibv_alloc_pd(elsewhere);
    struct ibv_mr *mr;
    uint32_t key;

    CHECK(pd && foreign);
    CHECK((mr = ibv_reg_mr(pair->pd, memory, BYTES, ACCESS | IBV_ACCESS_ZERO_BASED)) != NULL);
    use_remotely(pair, mr, 0, memory);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK((mr = ibv_reg_mr_iova(pair->pd, memory, BYTES, 0x7000, ACCESS)) != NULL);
    use_remotely(pair, mr, 0x7010, memory + 0x10);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK((mr = ibv_reg_mr_iova2(pair->pd, memory, BYTES, 0x9000,
                                 ACCESS | IBV_ACCESS_RELAXED_ORDERING)) != NULL);
    use_remotely(pair, mr, 0x9020, memory + 0x20);
    key = mr->rkey;
    CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, other, BYTES, 0), 0);
    CHECK_EQ(mr->rkey, key); /* peers need not be told */
    CHECK(mr->addr == other && mr->length == BYTES);
    use_remotely(pair, mr, (uintptr_t)other, other);
    key = mr->lkey;
    CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 1 << 30),
             IBV_REREG_MR_ERR_CMD);
    CHECK_EQ(mr->lkey, key); /* as it was */
    CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, foreign, NULL, 0, 0), IBV_REREG_MR_ERR_CMD);
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0), 0);
    CHECK(mr->pd == pd);
    CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    CHECK(!ibv_reg_mr(pair->pd, memory, SIZE_MAX, ACCESS) && errno == EINVAL);
    CHECK_EQ(ibv_dealloc_pd(foreign), 0);
    CHECK_EQ(ibv_close_device(elsewhere), 0);
}

static void check_device_memory(struct pair *pair)
{
    enum { ACCESS = IBV_ACCESS_LOCAL_WRITE | ALL_REMOTE | IBV_ACCESS_ZERO_BASED };
    struct ibv_alloc_dm_attr attr = {.length = 1000, .log_align_req = 6}, huge = {.length = ~0};
    struct ibv_device_attr_ex limits;
    struct ibv_dm *dm;
    struct ibv_mr *mr;
    char text[8];

    CHECK_EQ(ibv_query_device_ex(pair->context, NULL, &limits), 0);
    CHECK(limits.max_dm_size >= attr.length);
    CHECK(!ibv_alloc_dm(pair->context, &huge) && errno == ENOMEM);
    CHECK((dm = ibv_alloc_dm(pair->context, &attr)) != NULL);
    CHECK(!ibv_reg_dm_mr(pair->pd, dm, 0, 100, ACCESS & ~IBV_ACCESS_ZERO_BASED) && errno == EINVAL);
    CHECK(!ibv_reg_dm_mr(pair->pd, dm, 990, 100, ACCESS) && errno == EINVAL);
    CHECK((mr = ibv_reg_dm_mr(pair->pd, dm, 0, 0, ACCESS)) != NULL); /* as mlx5 does */
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK((mr = ibv_reg_dm_mr(pair->pd, dm, 200, 100, ACCESS)) != NULL);
    CHECK(mr->length == 100 && mr->pd == pair->pd);
    use_remotely(pair, mr, 12, NULL);
    CHECK_EQ(ibv_memcpy_from_dm(text, dm, 212, 8), 0);
    CHECK(!strcmp(text, "written"));
    CHECK_EQ(ibv_memcpy_to_dm(dm, 300, "outside", 8), 0);
    CHECK_EQ(ibv_memcpy_to_dm(dm, 996, "outside", 8), EFAULT);
    CHECK_EQ(ibv_memcpy_to_dm(dm, 2, "outside", 8), EINVAL);
    CHECK_EQ(ibv_memcpy_from_dm(text, dm, 0, 7), EINVAL);
    CHECK_EQ(ibv_memcpy_from_dm(text, dm, ~3ull, 8), EFAULT);
    CHECK_EQ(ibv_free_dm(dm), EBUSY);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(ibv_free_dm(dm), 0);
}

/* Reads as zeros, forgets what is written. */
static void check_null_region(struct pair *pair)
{
    struct ibv_mr *mr = ibv_alloc_null_mr(pair->pd);
    uint64_t remote = (uintptr_t)pair->right.buffer, local = (uintptr_t)pair->left.buffer;
    uint32_t lkey = pair->left.mr->lkey;

    CHECK(mr);
    memset(pair->right.buffer, 'x', 64 << 10);
    succeeds(transfer(pair, IBV_WR_RDMA_READ, (struct ibv_sge){0x1000, 10, mr->lkey}, remote,
                      pair->right.mr->rkey));
    for (size_t length = 10; length <= 64 << 10; length *= 80) { /* copied and not copied */
        succeeds(transfer(pair, IBV_WR_RDMA_WRITE, (struct ibv_sge){0x1000, length, mr->lkey},
                          remote, pair->right.mr->rkey));
        CHECK(pair->right.buffer[length - 1] == 0 && pair->right.buffer[length] == 'x');
    }
    /* Also for peers. */
    memset(pair->left.buffer, 'x', 64 << 10);
    succeeds(transfer(pair, IBV_WR_RDMA_WRITE, (struct ibv_sge){local, 64 << 10, lkey}, 0x5000,
                      mr->rkey));
    succeeds(transfer(pair, IBV_WR_RDMA_READ, (struct ibv_sge){local, 64 << 10, lkey}, 0x5000,
                      mr->rkey));
    for (size_t i = 0; i < 64 << 10; i++)
        CHECK_EQ(pair->left.buffer[i], 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
}

static void check_on_demand(struct pair *pair)
{
    enum { ACCESS = IBV_ACCESS_LOCAL_WRITE | ALL_REMOTE | IBV_ACCESS_ON_DEMAND };
    char *memory = map_apart(2 * BYTES, PROT_READ | PROT_WRITE);
    struct ibv_mr *all = ibv_reg_mr(pair->pd, NULL, SIZE_MAX, ACCESS), *mr;
    struct ibv_device_attr_ex device;
    struct ibv_sge sge;

    CHECK_EQ(ibv_query_device_ex(pair->context, NULL, &device), 0);
    CHECK(device.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT);
    CHECK(device.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_WRITE);
    CHECK(all);
    use_remotely(pair, all, (uintptr_t)memory, memory);
    CHECK((mr = ibv_reg_mr(pair->pd, memory, 2 * BYTES, ACCESS)) != NULL);
    use_remotely(pair, mr, (uintptr_t)memory, memory);
    sge = (struct ibv_sge){(uintptr_t)memory, BYTES, mr->lkey};
    CHECK_EQ(ibv_advise_mr(pair->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH,
                           &sge, 1),
             0);
    CHECK_EQ(ibv_advise_mr(pair->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 0), EINVAL);
    CHECK_EQ(ibv_advise_mr(pair->pd, 77, 0, &sge, 1), EOPNOTSUPP);
    sge.lkey ^= 1;
    CHECK_EQ(ibv_advise_mr(pair->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), ENOENT);
    sge = (struct ibv_sge){(uintptr_t)pair->left.buffer, 8, pair->left.mr->lkey};
    CHECK_EQ(ibv_advise_mr(pair->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), EINVAL);
    /* Memory that is gone is an error of the request, and no crash. */
    CHECK_EQ(munmap(memory + BYTES, BYTES), 0);
    sge = (struct ibv_sge){(uintptr_t)memory + BYTES, 8, mr->lkey};
    CHECK_EQ(
        ibv_advise_mr(pair->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1),
        EFAULT);
    CHECK(transfer(pair, IBV_WR_RDMA_WRITE, sge, (uintptr_t)memory, all->rkey).status !=
          IBV_WC_SUCCESS);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(ibv_dereg_mr(all), 0);
    CHECK_EQ(munmap(memory, BYTES), 0);
}

static void check_domains(struct ibv_context *context)
{
    struct ibv_td_init_attr td_attr = {0};
    struct ibv_pd *pd = ibv_alloc_pd(context), *parent;
    struct ibv_td *td = ibv_alloc_td(context, &td_attr);
    struct ibv_parent_domain_init_attr attr = {.pd = pd, .td = td};
    struct ibv_cq_init_attr_ex cq_attr = {.cqe = 4,
                                          .wc_flags = IBV_WC_STANDARD_FLAGS,
                                          .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS |
                                                       IBV_CQ_INIT_ATTR_MASK_PD,
                                          .flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
                                          .parent_domain = pd};
    struct ibv_qp_init_attr qp_attr = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
    static char memory[64];
    struct ibv_cq_ex *cq;
    struct ibv_mr *mr;
    struct ibv_qp *qp;

    CHECK(pd && td);
    CHECK((parent = ibv_alloc_parent_domain(context, &attr)) != NULL);
    CHECK_EQ(ibv_dealloc_td(td), EBUSY);
    CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
    attr.pd = parent;
    CHECK(!ibv_alloc_parent_domain(context, &attr) && errno == EINVAL);
    attr.pd = NULL;
    CHECK(!ibv_alloc_parent_domain(context, &attr) && errno == EINVAL);
    CHECK(!ibv_create_cq_ex(context, &cq_attr) && errno == EINVAL); /* no parent domain */
    cq_attr.parent_domain = parent;
    CHECK((cq = ibv_create_cq_ex(context, &cq_attr)) != NULL);
    CHECK_EQ(ibv_dealloc_pd(parent), EBUSY);
    qp_attr.send_cq = qp_attr.recv_cq = ibv_cq_ex_to_cq(cq);
    CHECK((qp = ibv_create_qp(parent, &qp_attr)) != NULL);
    CHECK(qp->pd == parent);
    CHECK((mr = ibv_reg_mr(parent, memory, sizeof(memory), 0)) != NULL);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
    CHECK_EQ(ibv_dealloc_pd(parent), 0);
    CHECK_EQ(ibv_dealloc_td(td), 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
}

int main(void)
{
    struct pair pair = make_pair((struct pair_options){0});

    check_domains(pair.context);
    check_addressing(&pair);
    check_device_memory(&pair);
    check_null_region(&pair);
    check_on_demand(&pair); /* ends with an error */
    destroy_pair(&pair);
    return 0;
}
