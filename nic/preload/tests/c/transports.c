/* Unreliable connections, shared receive queues, XRC and memory windows. */
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "transports.h"

static void connect_to(struct ibv_qp *qp, const union ibv_gid *gid, uint32_t peer)
{
    struct pair_options options = {0};

    to_init(qp, &options);
    to_ready_to_receive(qp, gid, peer);
    to_ready_to_send(qp, &options);
}

static void expect_event(struct ibv_context *context, enum ibv_event_type type, void *object)
{
    struct pollfd fd = {.fd = context->async_fd, .events = POLLIN};
    struct ibv_async_event event;

    do {
        CHECK_EQ(poll(&fd, 1, 60000), 1);
        CHECK_EQ(ibv_get_async_event(context, &event), 0);
        ibv_ack_async_event(&event);
    } while (event.event_type == IBV_EVENT_COMM_EST);
    CHECK_EQ(event.event_type, type);
    if (type == IBV_EVENT_SRQ_LIMIT_REACHED)
        CHECK(event.element.srq->events_completed > 0);
    CHECK(event.element.srq == object); /* all objects are at the same place */
}

/* Receives of a shared queue, its limit, and what is told when the queue pair dies. */
static void check_shared_queue(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq,
                               union ibv_gid *gid)
{
    static char memory[4096];
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
    struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 8, .max_sge = 2, .srq_limit = 5}};
    struct ibv_srq *srq = ibv_create_srq(pd, &srq_init);
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .srq = srq, .cap = {8, 0, 2, 0, 64}, .qp_type = IBV_QPT_RC};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    struct ibv_sge sge = {(uintptr_t)memory, 64, mr->lkey};
    struct ibv_recv_wr receive = {.sg_list = &sge, .num_sge = 1}, *bad_receive;
    struct ibv_send_wr send = {.wr_id = 99, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND},
                       *bad_send;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct ibv_qp_init_attr queried;
    struct ibv_srq_attr srq_attr;
    uint32_t number;

    CHECK(srq && qp && qp->srq == srq);
    CHECK(srq_init.attr.max_wr >= 8);
    CHECK_EQ(ibv_destroy_srq(srq), EBUSY);
    CHECK_EQ(ibv_get_srq_num(srq, &number), EINVAL);
    CHECK_EQ(ibv_query_srq(srq, &srq_attr), 0);
    CHECK(srq_attr.max_wr >= 8 && srq_attr.max_sge >= 2 && srq_attr.srq_limit == 0);
    connect_to(qp, gid, qp->qp_num);
    CHECK_EQ(ibv_post_recv(qp, &receive, &bad_receive), EINVAL);
    for (int i = 0; i < 4; i++) {
        receive.wr_id = i;
        CHECK_EQ(ibv_post_srq_recv(srq, &receive, &bad_receive), 0);
    }
    srq_attr.srq_limit = 3;
    CHECK_EQ(ibv_modify_srq(srq, &srq_attr, IBV_SRQ_LIMIT), 0);
    CHECK_EQ(ibv_query_srq(srq, &srq_attr), 0);
    CHECK_EQ(srq_attr.srq_limit, 3);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(ibv_post_send(qp, &send, &bad_send), 0);
        take(cq, i);
    }
    expect_event(context, IBV_EVENT_SRQ_LIMIT_REACHED, srq);
    CHECK_EQ(ibv_query_srq(srq, &srq_attr), 0);
    CHECK_EQ(srq_attr.srq_limit, 0); /* told once */
    srq_attr.max_wr = 64;
    CHECK_EQ(ibv_modify_srq(srq, &srq_attr, IBV_SRQ_MAX_WR), 0);
    CHECK_EQ(ibv_modify_srq(srq, &srq_attr, 1 << 9), EINVAL);
    CHECK_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &queried), 0);
    CHECK(queried.srq == srq);
    attr.qp_state = IBV_QPS_ERR;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    expect_event(context, IBV_EVENT_QP_LAST_WQE_REACHED, qp);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_destroy_srq(srq), 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
}

static struct ibv_xrcd *open_domain(struct ibv_context *context, int fd, int flags)
{
    struct ibv_xrcd_init_attr attr = {
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = flags};

    return ibv_open_xrcd(context, &attr);
}

static void check_domains(struct ibv_context *context)
{
    char name[] = "/tmp/urxe-xrcd-XXXXXX";
    int fd = mkstemp(name);
    struct ibv_xrcd *first, *second;

    CHECK(fd >= 0);
    CHECK(!open_domain(context, fd, 0) && errno == EAGAIN);
    CHECK((first = open_domain(context, fd, O_CREAT)) != NULL);
    CHECK((second = open_domain(context, fd, 0)) != NULL);
    CHECK(!open_domain(context, fd, O_CREAT | O_EXCL) && errno == EINVAL);
    CHECK(!open_domain(context, 9999, O_CREAT) && errno == EBADF);
    CHECK_EQ(ibv_close_xrcd(first), 0);
    CHECK((first = open_domain(context, fd, 0)) != NULL); /* still there */
    CHECK_EQ(ibv_close_xrcd(first), 0);
    CHECK_EQ(ibv_close_xrcd(second), 0);
    CHECK(!open_domain(context, fd, 0) && errno == EAGAIN);
    close(fd);
    unlink(name);
}

static struct ibv_srq *make_xrc_srq(struct ibv_context *context, struct ibv_pd *pd,
                                    struct ibv_xrcd *xrcd, struct ibv_cq *receives)
{
    struct ibv_srq_init_attr_ex srq_init = {.attr = {.max_wr = 8, .max_sge = 1},
                                            .comp_mask =
                                                IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                                                IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
                                            .srq_type = IBV_SRQT_XRC,
                                            .pd = pd,
                                            .xrcd = xrcd,
                                            .cq = receives};

    return ibv_create_srq_ex(context, &srq_init);
}

static struct ibv_qp *make_initiator(struct ibv_context *context, struct ibv_pd *pd,
                                     struct ibv_cq *cq)
{
    struct ibv_qp_init_attr_ex init = {.qp_type = IBV_QPT_XRC_SEND,
                                       .send_cq = cq,
                                       .cap = {8, 0, 1, 0, 64},
                                       .comp_mask =
                                           IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                       .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
                                       .pd = pd};

    return ibv_create_qp_ex(context, &init);
}

static struct ibv_qp_open_attr opening_of(struct ibv_xrcd *xrcd)
{
    return (struct ibv_qp_open_attr){
        .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
        .xrcd = xrcd,
        .qp_type = IBV_QPT_XRC_RECV,
    };
}

static void check_xrc(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq,
                      union ibv_gid *gid)
{
    static char memory[4096];
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | ALL_REMOTE);
    struct ibv_xrcd *xrcd = open_domain(context, -1, O_CREAT);
    struct ibv_cq *receives = ibv_create_cq(context, 8, NULL, NULL, 0);
    struct ibv_srq *srq = make_xrc_srq(context, pd, xrcd, receives);
    struct ibv_qp_init_attr_ex target_init = {
        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd};
    struct ibv_qp *target = ibv_create_qp_ex(context, &target_init), *again;
    struct ibv_qp *initiator = make_initiator(context, pd, cq);
    struct ibv_qp_open_attr open_attr = opening_of(xrcd);
    struct ibv_sge sge = {(uintptr_t)memory, 64, mr->lkey};
    struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad_receive;
    struct ibv_sge out = {(uintptr_t)memory + 100, 6, mr->lkey};
    struct ibv_send_wr send = {.wr_id = 2,
                               .sg_list = &out,
                               .num_sge = 1,
                               .opcode = IBV_WR_SEND,
                               .send_flags = IBV_SEND_SIGNALED},
                       *bad_send;
    struct ibv_qp_ex *extended;
    struct ibv_wc wc;

    CHECK(xrcd && srq && target && initiator && !target->pd);
    CHECK((extended = ibv_qp_to_qp_ex(initiator)) != NULL);
    CHECK_EQ(ibv_close_xrcd(xrcd), EBUSY);
    CHECK_EQ(ibv_get_srq_num(srq, &send.qp_type.xrc.remote_srqn), 0);
    connect_to(target, gid, initiator->qp_num);
    connect_to(initiator, gid, target->qp_num);
    strcpy(memory + 100, "extra");
    CHECK_EQ(ibv_post_srq_recv(srq, &receive, &bad_receive), 0);
    CHECK_EQ(ibv_post_send(initiator, &send, &bad_send), 0);
    wc = take(receives, 1);
    CHECK_EQ(wc.qp_num, target->qp_num);
    CHECK(!strcmp(memory, "extra"));
    take(cq, 2);
    CHECK_EQ(ibv_post_srq_recv(srq, &receive, &bad_receive), 0);
    ibv_wr_start(extended);
    extended->wr_id = 3;
    extended->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write_imm(extended, mr->rkey, (uintptr_t)memory + 500, 7);
    ibv_wr_set_xrc_srqn(extended, send.qp_type.xrc.remote_srqn);
    ibv_wr_set_sge(extended, mr->lkey, (uintptr_t)memory + 100, 6);
    CHECK_EQ(ibv_wr_complete(extended), 0);
    CHECK_EQ(take(receives, 1).opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    take(cq, 3);
    CHECK(!strcmp(memory + 500, "extra"));
    /* A second handle keeps the target alive. */
    open_attr.qp_num = target->qp_num;
    CHECK((again = ibv_open_qp(context, &open_attr)) != NULL);
    CHECK_EQ(again->qp_num, target->qp_num);
    CHECK_EQ(ibv_destroy_qp(target), 0);
    CHECK_EQ(ibv_post_srq_recv(srq, &receive, &bad_receive), 0);
    CHECK_EQ(ibv_post_send(initiator, &send, &bad_send), 0);
    take(receives, 1);
    take(cq, 2);
    CHECK_EQ(ibv_destroy_qp(again), 0);
    CHECK(!ibv_open_qp(context, &open_attr) && errno == EINVAL);
    open_attr.qp_num ^= 1 << 20; /* of another opening of the device */
    CHECK(!ibv_open_qp(context, &open_attr) && errno == EOPNOTSUPP);
    CHECK_EQ(ibv_destroy_qp(initiator), 0);
    CHECK_EQ(ibv_destroy_srq(srq), 0);
    CHECK_EQ(ibv_close_xrcd(xrcd), 0);
    CHECK_EQ(ibv_destroy_cq(receives), 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
}

/* One byte written by the left side to `remote`: the status. */
static enum ibv_wc_status write_byte(struct pair *pair, uint64_t remote, uint32_t rkey)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&pair->left, &sge, 1, IBV_WR_RDMA_WRITE, 1), *bad;

    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = rkey;
    CHECK_EQ(ibv_post_send(pair->left.qp, &wr, &bad), 0);
    return next_completion(pair->left.cq, pair->right.cq).status;
}

/* Closes a window of the side. */
static void invalidate(struct side *side, uint32_t rkey)
{
    struct ibv_send_wr wr = {.wr_id = 11,
                             .opcode = IBV_WR_LOCAL_INV,
                             .send_flags = IBV_SEND_SIGNALED,
                             .invalidate_rkey = rkey},
                       *bad;

    CHECK_EQ(ibv_post_send(side->qp, &wr, &bad), 0);
    CHECK_EQ(take(side->cq, 11).opcode, IBV_WC_LOCAL_INV);
}

/* A bound window of the right side gets its next key, of which only the low 8 bits are the
 * program's. */
static void check_key_bits(struct pair *pair, struct ibv_mw *mw, struct ibv_mw_bind_info *info,
                           uint64_t remote)
{
    uint32_t bound = ibv_inc_rkey(mw->rkey), next = ibv_inc_rkey(bound);
    struct ibv_send_wr wr = {.wr_id = 12,
                             .opcode = IBV_WR_BIND_MW,
                             .send_flags = IBV_SEND_SIGNALED,
                             .bind_mw = {.mw = mw, .rkey = next ^ 0xabcdef00, .bind_info = *info}},
                       *bad;

    invalidate(&pair->right, bound);
    CHECK_EQ(ibv_post_send(pair->right.qp, &wr, &bad), 0);
    CHECK_EQ(take(pair->right.cq, 12).opcode, IBV_WC_BIND_MW);
    CHECK_EQ(write_byte(pair, remote, next), IBV_WC_SUCCESS);
}

/* A window of type 1 is bound by a verb, one of type 2 by a work request. */
static void check_windows(void)
{
    struct pair pair = make_pair((struct pair_options){0});
    struct side *right = &pair.right;
    struct ibv_mr *mr = ibv_reg_mr(pair.pd, right->buffer, BUFFER_BYTES,
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    struct ibv_mw *one = ibv_alloc_mw(pair.pd, IBV_MW_TYPE_1);
    struct ibv_mw *two = ibv_alloc_mw(pair.pd, IBV_MW_TYPE_2);
    struct ibv_mw_bind bind = {
        .wr_id = 9,
        .send_flags = IBV_SEND_SIGNALED,
        .bind_info = {mr, (uintptr_t)right->buffer, 100, IBV_ACCESS_REMOTE_WRITE}};
    struct ibv_send_wr wr = {.wr_id = 10,
                             .opcode = IBV_WR_BIND_MW,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;
    uint64_t remote = (uintptr_t)right->buffer;
    uint32_t rkey = one->rkey;

    CHECK(mr && one && two);
    CHECK_EQ(ibv_bind_mw(right->qp, two, &bind), EINVAL);
    CHECK_EQ(ibv_bind_mw(right->qp, one, &bind), 0);
    CHECK_EQ(one->rkey, ibv_inc_rkey(rkey));
    CHECK_EQ(take(right->cq, 9).opcode, IBV_WC_BIND_MW);
    CHECK_EQ(write_byte(&pair, remote + 99, one->rkey), IBV_WC_SUCCESS);
    wr.bind_mw.mw = two;
    wr.bind_mw.rkey = ibv_inc_rkey(two->rkey);
    wr.bind_mw.bind_info = bind.bind_info;
    CHECK_EQ(ibv_post_send(right->qp, &wr, &bad), 0);
    take(right->cq, 10);
    CHECK_EQ(write_byte(&pair, remote, wr.bind_mw.rkey), IBV_WC_SUCCESS);
    wr.bind_mw.mw = one;
    CHECK_EQ(ibv_post_send(right->qp, &wr, &bad), EINVAL);
    CHECK_EQ(ibv_dereg_mr(mr), EBUSY); /* windows are bound to it */
    check_key_bits(&pair, two, &bind.bind_info, remote);
    rkey = ibv_inc_rkey(wr.bind_mw.rkey);
    invalidate(right, rkey);
    CHECK_EQ(write_byte(&pair, remote, rkey), IBV_WC_REM_ACCESS_ERR);
    CHECK_EQ(ibv_dealloc_mw(one), 0);
    CHECK_EQ(ibv_dealloc_mw(two), 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    destroy_pair(&pair);
}

/* A message and a write over an unreliable connection, in both ways of posting. */
static void check_unreliable(struct ibv_context *context, struct ibv_pd *pd, struct ibv_cq *cq)
{
    const int connects =
        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    static char memory[4096];
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | ALL_REMOTE);
    struct ibv_qp_init_attr_ex init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {4, 4, 1, 1, 64},
        .qp_type = IBV_QPT_UC,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = pd,
        .send_ops_flags = IBV_QP_EX_WITH_RDMA_READ,
    };
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL_REMOTE};
    struct ibv_sge in = {(uintptr_t)memory, 64, mr->lkey},
                   out = {(uintptr_t)memory + 100, 6, mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 1,
                             .sg_list = &out,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {(uintptr_t)memory + 300, mr->rkey}},
                       *bad;
    struct ibv_port_attr port;
    struct ibv_qp *qp;

    CHECK(!ibv_create_qp_ex(context, &init) && errno == EOPNOTSUPP);
    init.comp_mask = IBV_QP_INIT_ATTR_PD;
    CHECK((qp = ibv_create_qp_ex(context, &init)) != NULL);
    CHECK_EQ(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
             0);
    /* By its LID, as programs for InfiniBand do; LID 0, that of other RoCE devices, is no
     * port's. */
    CHECK_EQ(ibv_query_port(context, 1, &port), 0);
    CHECK(port.lid);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                                .path_mtu = IBV_MTU_1024,
                                .dest_qp_num = qp->qp_num,
                                .ah_attr = {.port_num = 1}};
    CHECK_EQ(ibv_modify_qp(qp, &attr, connects), EINVAL);
    attr.ah_attr.dlid = port.lid;
    CHECK_EQ(ibv_modify_qp(qp, &attr, connects), 0);
    attr.qp_state = IBV_QPS_RTS;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    strcpy(memory + 100, "maybe");
    CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0);
    take(cq, 1);
    receive_at(qp, 2, &in);
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = 0;
    CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0);
    CHECK_EQ(take(cq, 2).byte_len, 6);
    CHECK(!strcmp(memory, "maybe") && !strcmp(memory + 300, "maybe"));
    wr.opcode = IBV_WR_RDMA_READ;
    CHECK_EQ(ibv_post_send(qp, &wr, &bad), EINVAL);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
}

int main(void)
{
    struct ibv_context *context = open_loopback();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 32, NULL, NULL, 0);
    union ibv_gid gid;

    CHECK_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
    check_unreliable(context, pd, cq);
    check_shared_queue(context, pd, cq, &gid);
    check_domains(context);
    check_xrc(context, pd, cq, &gid);
    check_windows();
    CHECK_EQ(ibv_destroy_cq(cq), 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    CHECK_EQ(ibv_close_device(context), 0);
    return 0;
}
