/* Live objects of verbs: see calls.h. */
#ifndef URXE_OBJECTS_H
#define URXE_OBJECTS_H

#include "calls.h"

/* --- verbs ------------------------------------------------------------------------------------ */

static struct ibv_device **device_list(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);

    MADE(list);
    return list;
}

static struct ibv_device *device(void)
{
    struct ibv_device **list = device_list();

    for (int i = 0; list[i]; i++)
        if (!strcmp(ibv_get_device_name(list[i]), DEVICE))
            return list[i];
    MADE(!"there is no device " DEVICE);
    return NULL;
}

static struct ibv_context *new_context(void)
{
    struct ibv_context *context = ibv_open_device(device());

    MADE(context);
    never_block(context->async_fd);
    return context;
}

/* All objects but contexts themselves belong to one context. */
static struct ibv_context *context(void)
{
    static struct ibv_context *opened;

    return opened ? opened : (opened = new_context());
}

/* An object that no verb gives: its first member is the context, all else is zero. */
static void *fake(size_t size)
{
    struct ibv_context **memory = zeroed(size < 4096 ? 4096 : size);

    *memory = context();
    return memory;
}

static struct ibv_flow *fake_flow(void)
{
    struct ibv_flow *flow = zeroed(sizeof *flow);

    flow->context = context();
    return flow;
}

static struct ibv_pd *pd(void)
{
    static struct ibv_pd *made;

    MADE(made || (made = ibv_alloc_pd(context())));
    return made;
}

static struct ibv_pd *new_pd(void)
{
    struct ibv_pd *made = ibv_alloc_pd(context());

    MADE(made);
    return made;
}

static struct ibv_mr *mr_in(struct ibv_pd *domain)
{
    struct ibv_mr *made = ibv_reg_mr(domain, buffer, sizeof buffer, EVERY_ACCESS);

    MADE(made);
    return made;
}

static struct ibv_mr *mr(void)
{
    return mr_in(pd());
}

static struct ibv_mw *mw(enum ibv_mw_type type)
{
    struct ibv_mw *made = ibv_alloc_mw(pd(), type);

    MADE(made);
    return made;
}

static struct ibv_dm *dm(void)
{
    struct ibv_alloc_dm_attr attributes = {.length = 4096};
    struct ibv_dm *made = ibv_alloc_dm(context(), &attributes);

    MADE(made);
    return made;
}

static struct ibv_td *td(void)
{
    struct ibv_td_init_attr attributes = {0};
    struct ibv_td *made = ibv_alloc_td(context(), &attributes);

    MADE(made);
    return made;
}

static struct ibv_xrcd *xrcd(void)
{
    struct ibv_xrcd_init_attr attributes = {
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
        .fd = -1,
        .oflags = O_CREAT,
    };
    struct ibv_xrcd *made = ibv_open_xrcd(context(), &attributes);

    MADE(made);
    return made;
}

static struct ibv_comp_channel *channel(void)
{
    struct ibv_comp_channel *made = ibv_create_comp_channel(context());

    MADE(made);
    never_block(made->fd);
    return made;
}

static struct ibv_cq *cq(void)
{
    struct ibv_cq *made = ibv_create_cq(context(), DEPTH, NULL, NULL, 0);

    MADE(made);
    return made;
}

static struct ibv_cq_ex *cq_ex(void)
{
    struct ibv_cq_init_attr_ex attributes = {
        .cqe = DEPTH,
        .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
    };
    struct ibv_cq_ex *made = ibv_create_cq_ex(context(), &attributes);

    MADE(made);
    return made;
}

static struct ibv_srq *srq(void)
{
    struct ibv_srq_init_attr attributes = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
    struct ibv_srq *made = ibv_create_srq(pd(), &attributes);

    MADE(made);
    return made;
}

static struct ibv_srq *xrc_srq(void)
{
    struct ibv_srq_init_attr_ex attributes = {
        .attr = {.max_wr = DEPTH, .max_sge = 1},
        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                     IBV_SRQ_INIT_ATTR_CQ,
        .srq_type = IBV_SRQT_XRC,
        .pd = pd(),
        .xrcd = xrcd(),
        .cq = cq(),
    };
    struct ibv_srq *made = ibv_create_srq_ex(context(), &attributes);

    MADE(made);
    return made;
}

static union ibv_gid gid(void)
{
    union ibv_gid found;

    MADE(ibv_query_gid(context(), 1, 0, &found) == 0);
    return found;
}

/* To the device itself. */
static struct ibv_ah_attr *ah_attributes(void)
{
    struct ibv_ah_attr *attributes = zeroed(sizeof *attributes);

    attributes->grh.dgid = gid();
    attributes->grh.hop_limit = 64;
    attributes->is_global = 1;
    attributes->port_num = 1;
    return attributes;
}

static struct ibv_ah *ah_in(struct ibv_pd *domain)
{
    struct ibv_ah *made = ibv_create_ah(domain, ah_attributes());

    MADE(made);
    return made;
}

static struct ibv_ah *ah(void)
{
    return ah_in(pd());
}

/* The header of a datagram that the device has sent to itself, over IPv6. */
static struct ibv_grh *own_grh(void)
{
    struct ibv_grh *made = zeroed(sizeof *made);

    made->version_tclass_flow = htonl(6 << 28);
    made->hop_limit = 64;
    made->sgid = made->dgid = gid();
    return made;
}

/* An event that concerns no object. */
static struct ibv_async_event *port_event(void)
{
    struct ibv_async_event *made = zeroed(sizeof *made);

    made->element.port_num = 1;
    made->event_type = IBV_EVENT_PORT_ACTIVE;
    return made;
}

#ifdef HAVE_ibv_alloc_buf
/* The memory of the last buffer. */
static void *buf_memory;

static struct ibv_buf *buf(void)
{
    struct ibv_buf *made = NULL;

    MADE(buf_memory = ibv_alloc_buf(pd(), 4096, &made));
    return made;
}
#endif

/* --- queue pairs ------------------------------------------------------------------------------ */

static struct ibv_qp_init_attr *qp_init(enum ibv_qp_type type, struct ibv_cq *completions)
{
    struct ibv_qp_init_attr *attributes = zeroed(sizeof *attributes);

    attributes->send_cq = attributes->recv_cq = completions;
    attributes->cap.max_send_wr = attributes->cap.max_recv_wr = DEPTH;
    attributes->cap.max_send_sge = attributes->cap.max_recv_sge = 2;
    attributes->cap.max_inline_data = 64;
    attributes->qp_type = type;
    return attributes;
}

/* For the interface of ibv_wr_*, with all operations that the specification has for such queue
 * pairs. */
static struct ibv_qp_init_attr_ex *qp_init_ex(enum ibv_qp_type type)
{
    const struct ibv_qp_init_attr *simple = qp_init(type, cq());
    struct ibv_qp_init_attr_ex *attributes = zeroed(sizeof *attributes);

    attributes->send_cq = simple->send_cq;
    attributes->recv_cq = simple->recv_cq;
    attributes->cap = simple->cap;
    attributes->qp_type = type;
    attributes->comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attributes->pd = pd();
    attributes->send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    if (type != IBV_QPT_UD)
        attributes->send_ops_flags |=
            IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
            IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
            IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV |
            IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV;
#ifdef HAVE_ibv_wr_atomic_write
    if (type == IBV_QPT_RC)
        attributes->send_ops_flags |= IBV_QP_EX_WITH_ATOMIC_WRITE;
#endif
#ifdef HAVE_ibv_wr_flush
    if (type == IBV_QPT_RC)
        attributes->send_ops_flags |= IBV_QP_EX_WITH_FLUSH;
#endif
    if (type == IBV_QPT_XRC_SEND)
        attributes->cap.max_recv_wr = attributes->cap.max_recv_sge = 0;
    return attributes;
}

static struct ibv_qp *fresh_qp(enum ibv_qp_type type)
{
    struct ibv_qp *made = ibv_create_qp(pd(), qp_init(type, cq()));

    MADE(made);
    return made;
}

/* From RESET to RTS; one that has a connection is connected to itself. */
static void bring_up(struct ibv_qp *qp)
{
    const int is_ud = qp->qp_type == IBV_QPT_UD;
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qkey = 1,
        .qp_access_flags = EVERY_ACCESS & ~(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND),
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = qp->qp_num,
        .max_dest_rd_atomic = 1,
        .max_rd_atomic = 1,
        .min_rnr_timer = 12,
        .timeout = 14,
        .retry_cnt = 7,
        .rnr_retry = 7,
        .ah_attr = *ah_attributes(),
    };

    MADE(ibv_modify_qp(qp, &attributes,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                           (is_ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)) == 0);
    attributes.qp_state = IBV_QPS_RTR;
    MADE(ibv_modify_qp(qp, &attributes,
                       is_ud ? IBV_QP_STATE
                             : IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                   IBV_QP_MIN_RNR_TIMER) == 0);
    attributes.qp_state = IBV_QPS_RTS;
    MADE(ibv_modify_qp(qp, &attributes,
                       is_ud ? IBV_QP_STATE | IBV_QP_SQ_PSN
                             : IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                   IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static struct ibv_qp *qp(enum ibv_qp_type type)
{
    struct ibv_qp *made = fresh_qp(type);

    bring_up(made);
    return made;
}

static const union ibv_gid *group_gid(void)
{
    union ibv_gid *made = zeroed(sizeof *made);

    inet_pton(AF_INET6, "::ffff:239.1.2.3", made);
    return made;
}

/* One that is in a multicast group. */
static struct ibv_qp *attached(void)
{
    struct ibv_qp *made = qp(IBV_QPT_UD);

    MADE(ibv_attach_mcast(made, group_gid(), 0) == 0);
    return made;
}

static struct ibv_qp_ex *extended(enum ibv_qp_type type)
{
    struct ibv_qp *made = ibv_create_qp_ex(context(), qp_init_ex(type));
    struct ibv_qp_ex *same;

    MADE(made);
    bring_up(made);
    same = ibv_qp_to_qp_ex(made);
    MADE(same);
    return same;
}

/* One that work requests can be added to: of which ibv_wr_start was called. */
static struct ibv_qp_ex *started(enum ibv_qp_type type)
{
    struct ibv_qp_ex *made = extended(type);

    ibv_wr_start(made);
    return made;
}

/* One with a work request to which its data, or where it goes, can be added. */
static struct ibv_qp_ex *sending(enum ibv_qp_type type)
{
    struct ibv_qp_ex *made = started(type);

    made->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(made);
    return made;
}

/* A completion queue whose first completion is being looked at: of a WRITE of no bytes. */
static struct ibv_cq_ex *polled_cq_ex(void)
{
    struct ibv_cq_ex *made = cq_ex();
    struct ibv_qp *sender = ibv_create_qp(pd(), qp_init(IBV_QPT_RC, ibv_cq_ex_to_cq(made)));
    struct ibv_send_wr request = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad;
    struct ibv_poll_cq_attr poll = {0};

    MADE(sender);
    bring_up(sender);
    MADE(ibv_post_send(sender, &request, &bad) == 0);
    while (ibv_start_poll(made, &poll))
        sched_yield();
    return made;
}

#endif
