/* Objects whose handle a program has changed. What the kernel is asked to do is refused, as it does
 * not know the object. The object is as it was once the handle is right again. */
#include "urxe_test.h"

/* Evaluates an expression while the object's handle is another one. */
#define WITHOUT_HANDLE(object, expression)                                                         \
    do {                                                                                           \
        uint32_t *handle_ = &(object)->handle, right_ = *handle_;                                  \
        *handle_ = right_ + 0x1000000;                                                             \
        errno = 0;                                                                                 \
        expression;                                                                                \
        *handle_ = right_;                                                                         \
    } while (0)

#define IS_UNKNOWN(object, call) WITHOUT_HANDLE(object, CHECK_EQ(call, EINVAL))
#define IS_NOT_MADE(object, call) WITHOUT_HANDLE(object, CHECK(!(call) && errno == EINVAL))
#define IS_GONE(object, call) WITHOUT_HANDLE(object, CHECK_EQ(call, ENOENT))

static void check_memory(struct ibv_context *context, struct ibv_pd *pd)
{
    static char memory[64];
    struct ibv_alloc_dm_attr dm_attr = {.length = 64};
    struct ibv_dm *dm = ibv_alloc_dm(context, &dm_attr);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), 0);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);

    CHECK(dm && mr && mw);
    IS_NOT_MADE(pd, ibv_reg_mr(pd, memory, sizeof(memory), 0));
    IS_NOT_MADE(pd, ibv_alloc_null_mr(pd));
    IS_NOT_MADE(pd, ibv_alloc_mw(pd, IBV_MW_TYPE_1));
    IS_NOT_MADE(dm, ibv_reg_dm_mr(pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED));
    WITHOUT_HANDLE(mr, CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0),
                                IBV_REREG_MR_ERR_CMD));
    IS_GONE(mr, ibv_dereg_mr(mr));
    IS_GONE(mw, ibv_dealloc_mw(mw));
    IS_GONE(dm, ibv_free_dm(dm));
    CHECK_EQ(ibv_dealloc_mw(mw), 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(ibv_free_dm(dm), 0);
}

static void check_queues(struct ibv_context *context, struct ibv_pd *pd)
{
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
    struct ibv_modify_cq_attr moderation = {.attr_mask = IBV_CQ_ATTR_MODERATE};
    struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 4, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &srq_init);
    struct ibv_srq_attr srq_attr = {.srq_limit = 1};
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
    struct ibv_qp *qp;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    union ibv_gid gid;
    struct ibv_ah_attr ah_attr = {.is_global = 1, .port_num = 1};
    struct ibv_ah *ah;

    CHECK(cq && srq && (qp = ibv_create_qp(pd, &init)));
    CHECK_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
    ah_attr.grh.dgid = gid;
    CHECK((ah = ibv_create_ah(pd, &ah_attr)) != NULL);
    IS_NOT_MADE(pd, ibv_create_qp(pd, &init));
    IS_NOT_MADE(cq, ibv_create_qp(pd, &init));
    IS_NOT_MADE(srq, ibv_create_qp(pd, &init));
    IS_NOT_MADE(pd, ibv_create_srq(pd, &srq_init));
    IS_NOT_MADE(pd, ibv_create_ah(pd, &ah_attr));
    IS_UNKNOWN(qp,
               ibv_modify_qp(qp, &attr,
                             IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    CHECK_EQ(qp->state, IBV_QPS_RESET);
    IS_UNKNOWN(qp, ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
    IS_UNKNOWN(qp, ibv_attach_mcast(qp, &gid, 0));
    IS_UNKNOWN(qp, ibv_detach_mcast(qp, &gid, 0));
    IS_UNKNOWN(cq, ibv_resize_cq(cq, 8));
    IS_UNKNOWN(cq, ibv_modify_cq(cq, &moderation));
    IS_UNKNOWN(srq, ibv_modify_srq(srq, &srq_attr, IBV_SRQ_LIMIT));
    IS_UNKNOWN(srq, ibv_query_srq(srq, &srq_attr));
    IS_GONE(qp, ibv_destroy_qp(qp));
    CHECK_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
    IS_GONE(ah, ibv_destroy_ah(ah));
    CHECK_EQ(ibv_destroy_ah(ah), 0);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    IS_GONE(srq, ibv_destroy_srq(srq));
    CHECK_EQ(ibv_destroy_srq(srq), 0);
    IS_GONE(cq, ibv_destroy_cq(cq));
    CHECK_EQ(ibv_destroy_cq(cq), 0);
}

int main(void)
{
    struct ibv_context *context = open_loopback();
    struct ibv_pd *pd = ibv_alloc_pd(context);

    CHECK(pd);
    check_memory(context, pd);
    check_queues(context, pd);
    IS_GONE(pd, ibv_dealloc_pd(pd));
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    CHECK_EQ(ibv_close_device(context), 0);
    return 0;
}
