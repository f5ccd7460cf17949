/* Verbs called at random with arguments at random: each answers by its convention, and none crashes
 * the program or touches memory that it was not given. Arguments: the first seed, and how many.
 *
 * What C cannot check is left out: pointers to nowhere, and objects that were destroyed.
 */
#include "urxe_test.h"

#define STEPS 2000
#define KEPT_MAX 6
#define MEMORY_BYTES 8192

enum kind { PD, CHANNEL, CQ, SRQ, MR, MW, AH, QP, KINDS };

static struct ibv_context *context;
static void *kept[KINDS][KEPT_MAX];
static int count[KINDS];
static unsigned char *memory;
static uint64_t state;

static uint64_t bits(void)
{
    state ^= state << 13; /* xorshift64 */
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint64_t below(uint64_t end)
{
    return bits() % end;
}

/* A small number, one at a border, or any. */
static uint32_t number(void)
{
    static const uint32_t borders[] = {0, 1, 2, 7, 8, 255, 4096, 65535, 1u << 24, 1u << 31, ~0u};

    switch (below(3)) {
    case 0:
        return below(10);
    case 1:
        return borders[below(sizeof(borders) / sizeof(*borders))];
    default:
        return bits();
    }
}

static void *any(enum kind kind)
{
    return count[kind] ? kept[kind][below(count[kind])] : NULL;
}

/* Keeps an object, of which there is either one or an errno. */
static void keep(enum kind kind, void *object)
{
    if (object)
        kept[kind][count[kind]++] = object;
    else
        CHECK(errno > 0);
}

static void fill(void *place, size_t length)
{
    unsigned char *bytes = place;

    for (size_t i = 0; i < length; i++)
        bytes[i] = below(3) ? 0 : bits();
}

static struct ibv_sge sge(void)
{
    struct ibv_mr *mr = any(MR);
    struct ibv_sge sge = {
        .addr = (uintptr_t)memory + below(MEMORY_BYTES), .length = number(), .lkey = number()};

    if (mr && below(4))
        sge.lkey = mr->lkey;
    if (below(2))
        sge.length = below(64);
    if (!below(8))
        sge.addr = bits();
    return sge;
}

static void create(enum kind kind)
{
    struct ibv_pd *pd = any(PD);
    struct ibv_cq *cq = any(CQ), *other = any(CQ);

    errno = 0;
    if (count[kind] == KEPT_MAX || (!pd && kind != PD && kind != CHANNEL && kind != CQ))
        return;
    switch (kind) {
    case PD:
        return keep(kind, ibv_alloc_pd(context));
    case CHANNEL:
        return keep(kind, ibv_create_comp_channel(context));
    case CQ:
        return keep(kind, ibv_create_cq(context, (int)number(), NULL, any(CHANNEL), (int)below(3)));
    case SRQ: {
        struct ibv_srq_init_attr init = {.attr = {number(), below(8), number()}};

        return keep(kind, ibv_create_srq(pd, &init));
    }
    case MR:
        /* Some of them where nothing is mapped. */
        if (!below(8))
            return keep(kind, ibv_reg_mr(pd, (void *)4096, number(), below(64)));
        return keep(kind, ibv_reg_mr(pd, memory + below(MEMORY_BYTES / 2), below(MEMORY_BYTES / 2),
                                     below(64)));
    case MW:
        return keep(kind, ibv_alloc_mw(pd, (enum ibv_mw_type)below(4)));
    case AH: {
        struct ibv_ah_attr attr;

        fill(&attr, sizeof(attr));
        if (below(2)) {
            attr.is_global = attr.port_num = 1;
            attr.grh.sgid_index = 0;
            CHECK_EQ(ibv_query_gid(context, 1, 0, &attr.grh.dgid), 0);
        }
        return keep(kind, ibv_create_ah(pd, &attr));
    }
    default: {
        struct ibv_qp_init_attr init = {
            .send_cq = cq,
            .recv_cq = other,
            .srq = below(3) ? NULL : any(SRQ),
            .cap = {number(), number(), below(40), below(40), number()},
            .qp_type = (enum ibv_qp_type)below(12),
            .sq_sig_all = (int)below(2),
        };

        if (below(4)) {
            init.cap = (struct ibv_qp_cap){below(32), below(32), below(4), below(4), below(256)};
            init.qp_type = (enum ibv_qp_type)(2 + below(3));
        }
        return keep(kind, ibv_create_qp(pd, &init));
    }
    }
}

static int destroyed(enum kind kind, void *object)
{
    switch (kind) {
    case PD:
        return ibv_dealloc_pd(object);
    case CHANNEL:
        return ibv_destroy_comp_channel(object);
    case CQ:
        return ibv_destroy_cq(object);
    case SRQ:
        return ibv_destroy_srq(object);
    case MR:
        return ibv_dereg_mr(object);
    case MW:
        return ibv_dealloc_mw(object);
    case AH:
        return ibv_destroy_ah(object);
    default:
        return ibv_destroy_qp(object);
    }
}

/* An object in use is busy, and stays. */
static void destroy(enum kind kind)
{
    int at = count[kind] ? (int)below(count[kind]) : -1;

    if (at < 0)
        return;
    int result = destroyed(kind, kept[kind][at]);
    CHECK(result == 0 || result == EBUSY);
    if (result == 0)
        kept[kind][at] = kept[kind][--count[kind]];
}

static void modify(struct ibv_qp *qp)
{
    static const int usual[] = {
        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
            IBV_QP_MAX_QP_RD_ATOMIC,
        IBV_QP_STATE,
        IBV_QP_STATE | IBV_QP_SQ_PSN,
    };
    struct ibv_qp_attr attr;
    struct ibv_qp *peer = any(QP);
    int mask = below(3) ? usual[below(6)] : (int)bits();

    fill(&attr, sizeof(attr));
    attr.qp_state = (enum ibv_qp_state)below(9);
    if (below(5)) {
        attr = (struct ibv_qp_attr){
            .qp_state = (enum ibv_qp_state)(qp->state == IBV_QPS_RTS ? 6 : (int)qp->state + 1),
            .port_num = 1,
            .path_mtu = (enum ibv_mtu)(1 + below(5)),
            .dest_qp_num = peer ? peer->qp_num : number(),
            .qp_access_flags = (int)below(16),
            .max_dest_rd_atomic = below(17),
            .max_rd_atomic = below(17),
            .timeout = 8,
            .retry_cnt = below(8),
            .rnr_retry = below(7),
            .qkey = 5,
            .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1}},
        };
        CHECK_EQ(ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid), 0);
        mask = qp->qp_type == IBV_QPT_UD && qp->state == IBV_QPS_RESET ? usual[1]
               : qp->state == IBV_QPS_RESET                            ? usual[0]
               : qp->state == IBV_QPS_INIT                             ? usual[2]
               : qp->state == IBV_QPS_RTR                              ? usual[3]
                                                                       : usual[4];
        if (qp->qp_type != IBV_QPT_RC)
            mask &= ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_TIMEOUT |
                      IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
        if (qp->qp_type == IBV_QPT_UD)
            mask &= ~(IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN);
    }
    CHECK(ibv_modify_qp(qp, &attr, mask) >= 0);
}

static void post_send(struct ibv_qp *qp)
{
    struct ibv_sge list[4] = {sge(), sge(), sge(), sge()};
    struct ibv_mr *mr = any(MR);
    struct ibv_mw *mw = any(MW);
    struct ibv_send_wr wrs[3], *bad = NULL;
    int length = 1 + (int)below(3);

    for (int i = 0; i < length; i++) {
        wrs[i] = (struct ibv_send_wr){
            .wr_id = bits(),
            .next = i + 1 < length ? &wrs[i + 1] : NULL,
            .sg_list = list,
            .num_sge = below(6) ? (int)below(5) : (int)number(),
            .opcode = (enum ibv_wr_opcode)(below(6) ? below(9) : bits()),
            .send_flags = below(64),
        };
        wrs[i].wr.rdma.remote_addr = (uintptr_t)memory + below(MEMORY_BYTES);
        wrs[i].wr.rdma.rkey = mr && below(3) ? mr->rkey : number();
        if (qp->qp_type == IBV_QPT_UD) {
            wrs[i].wr.ud.ah = any(AH);
            wrs[i].wr.ud.remote_qpn = qp->qp_num;
            wrs[i].wr.ud.remote_qkey = 5;
            if (!wrs[i].wr.ud.ah)
                return;
        }
        if (wrs[i].opcode == IBV_WR_BIND_MW) {
            if (!mw)
                return;
            wrs[i].bind_mw.mw = mw;
            wrs[i].bind_mw.rkey = number();
            wrs[i].bind_mw.bind_info =
                (struct ibv_mw_bind_info){mr, (uintptr_t)memory, number(), (unsigned)below(64)};
        }
        /* Inline data is read from its address, right now. */
        if (wrs[i].send_flags & IBV_SEND_INLINE)
            for (int j = 0; j < 4; j++)
                list[j] = (struct ibv_sge){(uintptr_t)memory + below(64), below(512), number()};
        if (wrs[i].num_sge > 4)
            wrs[i].num_sge = 4;
    }
    int result = ibv_post_send(qp, wrs, &bad);
    CHECK(result >= 0);
    if (result) {
        CHECK(bad >= wrs && bad < wrs + length);
    }
}

static void post_receive_on(struct ibv_qp *qp, struct ibv_srq *srq)
{
    struct ibv_sge list[4] = {sge(), sge(), sge(), sge()};
    struct ibv_recv_wr wr = {.wr_id = bits(), .sg_list = list, .num_sge = (int)below(5)};
    struct ibv_recv_wr *bad = NULL;
    int result = srq ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad);

    CHECK(result >= 0);
    if (result)
        CHECK(bad == &wr);
}

static void poll(struct ibv_cq *cq)
{
    struct ibv_wc wcs[8];
    int got = ibv_poll_cq(cq, (int)below(9), wcs);

    CHECK(got >= 0 && got <= 8);
    for (int i = 0; i < got; i++)
        CHECK(ibv_wc_status_str(wcs[i].status));
    CHECK(ibv_req_notify_cq(cq, (int)below(2)) >= 0);
}

static void query(void)
{
    struct ibv_qp *qp = any(QP);
    struct ibv_srq *srq = any(SRQ);
    struct ibv_cq *cq = any(CQ);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    struct ibv_srq_attr srq_attr = {number(), number(), number()};
    struct ibv_port_attr port;
    union ibv_gid gid;
    uint16_t pkey;

    (void)!ibv_query_port(context, number(), &port);
    (void)!ibv_query_gid(context, number(), (int)number(), &gid);
    (void)!ibv_query_pkey(context, number(), (int)number(), &pkey);
    if (qp)
        CHECK_EQ(ibv_query_qp(qp, &attr, (int)bits(), &init), 0);
    if (srq && below(2))
        CHECK(ibv_modify_srq(srq, &srq_attr, (int)below(8)) >= 0);
    if (srq)
        CHECK_EQ(ibv_query_srq(srq, &srq_attr), 0);
    if (cq && below(2))
        CHECK(ibv_resize_cq(cq, (int)number()) >= 0);
}

static void step(void)
{
    struct ibv_qp *qp = any(QP);
    struct ibv_cq *cq = any(CQ);
    struct ibv_srq *srq = any(SRQ);
    enum kind kind = (enum kind)below(KINDS);

    switch (below(10)) {
    case 0 ... 1:
        return create(kind);
    case 2:
        return destroy(kind);
    case 3 ... 4:
        return qp ? modify(qp) : create(QP);
    case 5 ... 6:
        return qp ? post_send(qp) : create(QP);
    case 7:
        if (qp)
            post_receive_on(qp, NULL);
        if (srq)
            post_receive_on(NULL, srq);
        return;
    case 8:
        return cq ? poll(cq) : create(CQ);
    default:
        return query();
    }
}

static void run(uint64_t seed)
{
    state = seed * 0x9e3779b97f4a7c15 + 1;
    context = open_loopback();
    /* A page on each side that nothing may touch, as far as it is written. */
    unsigned char *whole = malloc(3 * MEMORY_BYTES);
    CHECK(whole);
    memset(whole, 0xcc, 3 * MEMORY_BYTES);
    memory = whole + MEMORY_BYTES;
    for (int i = 0; i < STEPS; i++)
        step();
    /* What stands on others goes first. */
    for (int kind = KINDS - 1; kind >= 0; kind--)
        while (count[kind]) {
            CHECK_EQ(destroyed(kind, kept[kind][count[kind] - 1]), 0);
            count[kind]--;
        }
    CHECK_EQ(ibv_close_device(context), 0);
    for (int i = 0; i < MEMORY_BYTES; i++)
        CHECK(whole[i] == 0xcc && whole[2 * MEMORY_BYTES + i] == 0xcc);
    free(whole);
}

int main(int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    uint64_t seeds = argc > 2 ? strtoull(argv[2], NULL, 0) : 40;

    for (uint64_t seed = first; seed < first + seeds; seed++) {
        /* Whatever ends the program, the last line says how to come back here. */
        fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
        run(seed);
    }
    return 0;
}
