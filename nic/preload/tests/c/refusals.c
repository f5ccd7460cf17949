/* What is not supported or not allowed says so, in each verb's own way, and nothing crashes. */
#include <fcntl.h>

#include "urxe_test.h"

/* The call gives a null pointer and the errno. */
#define CHECK_NULL(call, error)                                                                    \
    do {                                                                                           \
        errno = 0;                                                                                 \
        CHECK((call) == NULL);                                                                     \
        CHECK_EQ(errno, error);                                                                    \
    } while (0)

static void check_unsupported(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_wq_init_attr wq = {.max_wr = 1, .max_sge = 1, .pd = pd, .cq = cq};
    struct ibv_srq_init_attr_ex matching = {.attr = {8, 1, 0},
                                            .comp_mask =
                                                IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
                                            .srq_type = IBV_SRQT_TM,
                                            .pd = pd};
    struct ibv_xrcd_init_attr xrcd = {0};
    struct ibv_ah_attr ah = {.port_num = 1};

    CHECK_NULL(ibv_create_wq(context, &wq), EOPNOTSUPP);
    CHECK_NULL(ibv_create_srq_ex(context, &matching), EOPNOTSUPP);
    CHECK_NULL(ibv_open_xrcd(context, &xrcd), EINVAL);
    CHECK_NULL(ibv_create_ah(pd, &ah), EINVAL); /* no GID */
    CHECK_NULL(ibv_alloc_mw(pd, 3), EINVAL);
    CHECK_NULL(ibv_reg_dmabuf_mr(pd, 0, 1, 0, -1, 0), EOPNOTSUPP);
    CHECK_NULL(ibv_import_pd(context, 1), EOPNOTSUPP);
    CHECK(fcntl(context->cmd_fd, F_GETFD) & FD_CLOEXEC);
    CHECK_NULL(ibv_import_device(context->cmd_fd), EOPNOTSUPP);
}

static void check_queue_pairs(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq)
{
    const enum ibv_qp_type kinds[] = {IBV_QPT_RAW_PACKET, IBV_QPT_DRIVER};
    struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .cap = {1, 1, 1, 1, 0}};
    struct ibv_qp_init_attr_ex extended = {.send_cq = cq,
                                           .recv_cq = cq,
                                           .cap = {1, 1, 1, 1, 0},
                                           .qp_type = IBV_QPT_RC,
                                           .comp_mask = IBV_QP_INIT_ATTR_PD |
                                                        IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                           .send_ops_flags = IBV_QP_EX_WITH_TSO,
                                           .pd = pd};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        attr.qp_type = kinds[i];
        CHECK_NULL(ibv_create_qp(pd, &attr), EOPNOTSUPP);
    }
    attr.qp_type = 77;
    CHECK_NULL(ibv_create_qp(pd, &attr), EINVAL);
    attr.qp_type = IBV_QPT_RC;
    attr.send_cq = NULL;
    CHECK_NULL(ibv_create_qp(pd, &attr), EINVAL);
    attr.send_cq = cq;
    attr.cap.max_send_wr = 1 << 30;
    CHECK_NULL(ibv_create_qp(pd, &attr), EINVAL);
    CHECK_NULL(ibv_create_qp_ex(context, &extended), EOPNOTSUPP);
    extended.send_ops_flags = IBV_QP_EX_WITH_SEND;
    extended.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    CHECK_NULL(ibv_create_qp_ex(context, &extended), EINVAL);
}

static void check_states(struct ibv_qp *qp)
{
    struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad_send = NULL;
    struct ibv_recv_wr first = {.num_sge = 0}, *bad_receive = NULL;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
    struct ibv_qp_init_attr init;
    struct ibv_ece ece = {.vendor_id = 1};

    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
    attr.qp_state = 99;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
    CHECK_EQ(ibv_modify_qp(qp, &attr, 1 << 30), EINVAL);
    CHECK_EQ(ibv_modify_qp(qp, NULL, IBV_QP_STATE), EINVAL);
    CHECK_EQ(qp->state, IBV_QPS_RESET);
    CHECK_EQ(ibv_post_send(qp, &send, &bad_send), EINVAL);
    CHECK(bad_send == &send);
    CHECK_EQ(ibv_post_recv(qp, &first, &bad_receive), EINVAL);
    CHECK(bad_receive == &first);
    CHECK_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
    CHECK_EQ(attr.qp_state, IBV_QPS_RESET);
    CHECK_EQ(init.qp_type, IBV_QPT_RC);
    CHECK(ibv_qp_to_qp_ex(qp) == NULL);
    CHECK_EQ(ibv_set_ece(qp, &ece), EOPNOTSUPP);
    CHECK_EQ(ibv_query_qp_data_in_order(qp, IBV_WR_SEND, 0), 0);
    to_init(qp, &(struct pair_options){0});
    /* Without a GID there is no address in RoCE. */
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .ah_attr.port_num = 1};
    CHECK_EQ(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                               IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
             EINVAL);
}

/* Posting what is not supported or more than there is room for. */
static void check_posting(void)
{
    struct pair pair = make_pair((struct pair_options){.signal_all = true});
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&pair.left, &sge, 1, IBV_WR_TSO, 8), *bad;
    int posted = 0;

    CHECK_EQ(ibv_post_send(pair.left.qp, &wr, &bad), EOPNOTSUPP);
    wr.opcode = 99;
    CHECK_EQ(ibv_post_send(pair.left.qp, &wr, &bad), EINVAL);
    wr.opcode = IBV_WR_SEND;
    wr.num_sge = 1000;
    CHECK_EQ(ibv_post_send(pair.left.qp, &wr, &bad), EINVAL);
    wr.num_sge = -1;
    CHECK_EQ(ibv_post_send(pair.left.qp, &wr, &bad), EINVAL);
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_INLINE;
    sge.length = 1 << 16;
    CHECK_EQ(ibv_post_send(pair.left.qp, &wr, &bad), EINVAL);
    wr.send_flags = 0;
    sge.length = 8; /* no receive is posted: nothing completes */
    while (posted < 100000 && !ibv_post_send(pair.left.qp, &wr, &bad))
        posted++;
    CHECK(posted >= DEPTH && posted < 100000);
    CHECK_EQ(ibv_post_send(pair.left.qp, &wr, &bad), ENOMEM);
    CHECK(bad == &wr);
    destroy_pair(&pair);
}

static void check_use(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr attr = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *listening = ibv_create_cq(context, 1, NULL, channel, 0);
    struct ibv_qp *qp = ibv_create_qp(pd, &attr);
    static char memory[64];
    struct ibv_mr *mr;

    CHECK(qp && listening);
    CHECK_EQ(ibv_destroy_cq(cq), EBUSY);
    CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
    CHECK_EQ(ibv_destroy_comp_channel(channel), EBUSY);
    check_states(qp);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK((mr = ibv_reg_mr(pd, memory, sizeof(memory), 0)) != NULL);
    CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    /* A peer must not write where the program itself may not. */
    CHECK_NULL(ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_REMOTE_WRITE), EINVAL);
    CHECK((mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_RELAXED_ORDERING)) != NULL);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(ibv_destroy_cq(listening), 0);
    CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
}

static void check_null(void)
{
    CHECK_NULL(ibv_alloc_pd(NULL), EINVAL);
    CHECK_NULL(ibv_create_cq(NULL, 1, NULL, NULL, 0), EINVAL);
    CHECK_NULL(ibv_create_qp(NULL, NULL), EINVAL);
    CHECK_EQ(ibv_destroy_qp(NULL), EINVAL);
    CHECK_EQ(ibv_dereg_mr(NULL), EINVAL);
    CHECK_EQ(ibv_close_device(NULL), -1);
    ibv_ack_cq_events(NULL, 1);
}

int main(void)
{
    struct ibv_context *context = open_loopback();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);

    CHECK(pd && cq);
    CHECK_NULL(ibv_create_cq(context, 0, NULL, NULL, 0), EINVAL);
    CHECK_NULL(ibv_create_cq(context, -1, NULL, NULL, 0), EINVAL);
    CHECK_NULL(ibv_create_cq(context, 1, NULL, NULL, context->num_comp_vectors), EINVAL);
    check_null();
    check_unsupported(context, pd, cq);
    check_queue_pairs(context, pd, cq);
    check_use(context, pd, cq);
    check_posting();
    CHECK_EQ(ibv_resize_cq(cq, 100), 0);
    CHECK(cq->cqe >= 100);
    CHECK_EQ(ibv_destroy_cq(cq), 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    CHECK_EQ(ibv_close_device(context), 0);
    return 0;
}
