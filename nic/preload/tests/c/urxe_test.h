/* What the C tests of liburxe.so share: checks, and a pair of connected queue pairs over loopback.
 */
#ifndef URXE_TEST_H
#define URXE_TEST_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not true: %s (errno %d, %s)\n", __FILE__, __LINE__,            \
                    #condition, errno, strerror(errno));                                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define CHECK_EQ(left, right)                                                                      \
    do {                                                                                           \
        long long left_ = (long long)(left), right_ = (long long)(right);                          \
        if (left_ != right_) {                                                                     \
            fprintf(stderr, "%s:%d: %s is %lld and %s is %lld\n", __FILE__, __LINE__, #left,       \
                    left_, #right, right_);                                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define LOOPBACK "urxe_lo"
#define DEPTH 32
#define BUFFER_BYTES (1 << 20)

static inline struct ibv_context *open_loopback(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = NULL;

    CHECK(list);
    for (int i = 0; list[i] && !context; i++)
        if (!strcmp(ibv_get_device_name(list[i]), LOOPBACK))
            context = ibv_open_device(list[i]);
    CHECK(context);
    ibv_free_device_list(list);
    return context;
}

/* Two queue pairs of one context, connected to each other, with a buffer each. */
struct side {
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    unsigned char *buffer;
};

struct pair {
    struct ibv_context *context;
    struct ibv_pd *pd;
    union ibv_gid gid;
    struct side left, right;
};

/* How a pair's queue pairs are made; zero is a good default. */
struct pair_options {
    bool with_channel;
    bool signal_all;
    uint64_t send_ops; /* not 0: the extended interface */
    uint8_t timeout, retry, rnr_retry;
    int buffer_access, qp_access; /* what peers may do; 0: everything */
};

enum { ALL_REMOTE = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

static inline void make_side(struct pair *pair, struct side *side,
                             const struct pair_options *options)
{
    struct ibv_qp_init_attr_ex init = {
        .cap = {.max_send_wr = DEPTH,
                .max_recv_wr = DEPTH,
                .max_send_sge = 4,
                .max_recv_sge = 4,
                .max_inline_data = 64},
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = options->signal_all,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = pair->pd,
        .send_ops_flags = options->send_ops,
    };

    if (options->with_channel)
        CHECK(side->channel = ibv_create_comp_channel(pair->context));
    side->cq = ibv_create_cq(pair->context, 2 * DEPTH, side, side->channel, 0);
    CHECK(side->cq);
    CHECK(side->cq->cqe >= 2 * DEPTH);
    init.send_cq = init.recv_cq = side->cq;
    if (!options->send_ops)
        init.comp_mask = IBV_QP_INIT_ATTR_PD;
    side->qp = ibv_create_qp_ex(pair->context, &init);
    CHECK(side->qp);
    CHECK(init.cap.max_send_wr >= DEPTH && init.cap.max_inline_data >= 64);
    CHECK(side->buffer = calloc(1, BUFFER_BYTES));
    side->mr = ibv_reg_mr(pair->pd, side->buffer, BUFFER_BYTES,
                          IBV_ACCESS_LOCAL_WRITE |
                              (options->buffer_access ? options->buffer_access : ALL_REMOTE));
    CHECK(side->mr);
}

static inline void to_init(struct ibv_qp *qp, const struct pair_options *options)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = 1,
        .qp_access_flags = options->qp_access ? options->qp_access : ALL_REMOTE,
    };

    CHECK_EQ(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
             0);
    CHECK_EQ(qp->state, IBV_QPS_INIT);
}

static inline void to_ready_to_receive(struct ibv_qp *qp, const union ibv_gid *gid, uint32_t peer)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = peer,
        .rq_psn = 0xfffff0, /* wraps around soon */
        .max_dest_rd_atomic = 4,
        .min_rnr_timer = 1,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = *gid, .hop_limit = 64}},
    };

    CHECK_EQ(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                               IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
             0);
}

static inline void to_ready_to_send(struct ibv_qp *qp, const struct pair_options *options)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTS,
        .timeout = options->timeout ? options->timeout : 14,
        .retry_cnt = options->retry ? options->retry : 7,
        .rnr_retry = options->rnr_retry ? options->rnr_retry : 7,
        .sq_psn = 0xfffff0,
        .max_rd_atomic = 4,
    };

    CHECK_EQ(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                               IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
             0);
    CHECK_EQ(qp->state, IBV_QPS_RTS);
}

/* Makes both sides of a pair that has a context, a protection domain and an address. */
static inline void make_sides(struct pair *pair, const struct pair_options *options)
{
    struct side *sides[] = {&pair->left, &pair->right};

    for (int i = 0; i < 2; i++)
        make_side(pair, sides[i], options);
    for (int i = 0; i < 2; i++) {
        to_init(sides[i]->qp, options);
        to_ready_to_receive(sides[i]->qp, &pair->gid, sides[!i]->qp->qp_num);
        to_ready_to_send(sides[i]->qp, options);
    }
}

static inline struct pair make_pair(struct pair_options options)
{
    struct pair pair = {.context = open_loopback()};

    CHECK(pair.pd = ibv_alloc_pd(pair.context));
    CHECK_EQ(ibv_query_gid(pair.context, 1, 0, &pair.gid), 0);
    make_sides(&pair, &options);
    return pair;
}

static inline void destroy_pair(struct pair *pair)
{
    struct side *sides[] = {&pair->left, &pair->right};

    for (int i = 0; i < 2; i++) {
        CHECK_EQ(ibv_destroy_qp(sides[i]->qp), 0);
        CHECK_EQ(ibv_destroy_cq(sides[i]->cq), 0);
        if (sides[i]->channel)
            CHECK_EQ(ibv_destroy_comp_channel(sides[i]->channel), 0);
        CHECK_EQ(ibv_dereg_mr(sides[i]->mr), 0);
        free(sides[i]->buffer);
    }
    CHECK_EQ(ibv_dealloc_pd(pair->pd), 0);
    CHECK_EQ(ibv_close_device(pair->context), 0);
}

static inline double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

/* The next completion of a queue, of a queue pair that may need its peer's queue polled too. */
static inline struct ibv_wc next_completion(struct ibv_cq *cq, struct ibv_cq *peer)
{
    struct ibv_wc wc;
    double start = seconds();
    int got;

    while (!(got = ibv_poll_cq(cq, 1, &wc))) {
        /* In valgrind, on a busy machine, a message takes seconds. */
        CHECK(seconds() - start < 60);
        if (peer)
            CHECK(ibv_poll_cq(peer, 0, NULL) >= 0);
    }
    CHECK_EQ(got, 1);
    return wc;
}

static inline void post_receive(struct side *side, uint64_t wr_id, size_t offset, uint32_t length)
{
    struct ibv_sge sge = {(uintptr_t)side->buffer + offset, length, side->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;

    CHECK_EQ(ibv_post_recv(side->qp, &wr, &bad), 0);
}

/* A signaled request over `length` bytes at the start of the side's buffer, to be completed and
 * posted. */
static inline struct ibv_send_wr request(struct side *side, struct ibv_sge *sge, uint64_t wr_id,
                                         enum ibv_wr_opcode opcode, uint32_t length)
{
    *sge = (struct ibv_sge){(uintptr_t)side->buffer, length, side->mr->lkey};
    return (struct ibv_send_wr){.wr_id = wr_id,
                                .sg_list = sge,
                                .num_sge = 1,
                                .opcode = opcode,
                                .send_flags = IBV_SEND_SIGNALED};
}

#endif
