/* Every length and count that a program gives: none, 2^31, 2^32 - 1, and several whose sum is more
 * than 2^32. They are checked before memory is touched: what is named here ends at a page that no
 * access may touch. */
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "urxe_test.h"

enum { PAGE = 4096 };

static const uint32_t HUGE_LENGTHS[] = {1u << 30, 1u << 31, UINT32_MAX};
enum { HUGE_COUNT = sizeof(HUGE_LENGTHS) / sizeof(*HUGE_LENGTHS) };

/* One page that is there, and one behind it that is not. */
static char *page;

static struct ibv_send_wr send_of(struct ibv_sge *list, int count, unsigned flags)
{
    return (struct ibv_send_wr){.wr_id = 1,
                                .sg_list = list,
                                .num_sge = count,
                                .opcode = IBV_WR_SEND,
                                .send_flags = flags | IBV_SEND_SIGNALED};
}

/* A list of `count` elements of `length` bytes each is refused, and the first request is to blame.
 */
static void refuse_send(struct pair *pair, uint32_t length, int count, unsigned flags)
{
    struct ibv_sge list[4];
    struct ibv_send_wr wr = send_of(list, count, flags), *bad = NULL;

    for (int i = 0; i < 4; i++)
        list[i] = (struct ibv_sge){(uintptr_t)page, length, pair->left.mr->lkey};
    CHECK_EQ(ibv_post_send(pair->left.qp, &wr, &bad), EINVAL);
    CHECK(bad == &wr);
}

static void check_sends(struct pair *pair)
{
    struct ibv_sge list[4] = {{(uintptr_t)page, 0, 0}};
    struct ibv_send_wr wr, *bad;
    const int counts[] = {-1, INT32_MIN, 5, 33, INT32_MAX};

    for (int count = 1; count <= 4; count++)
        for (int i = 0; i < HUGE_COUNT; i++) {
            refuse_send(pair, HUGE_LENGTHS[i], count, IBV_SEND_INLINE);
            if (HUGE_LENGTHS[i] > 1u << 30 || count > 1)
                refuse_send(pair, HUGE_LENGTHS[i], count, 0);
        }
    for (int inlined = 0; inlined < 2; inlined++)
        for (unsigned i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
            wr = send_of(list, counts[i], inlined ? IBV_SEND_INLINE : 0);
            CHECK_EQ(ibv_post_send(pair->left.qp, &wr, &bad), EINVAL);
        }
    /* Nothing is a message, too, wherever its address points. */
    post_receive(&pair->right, 2, 0, 64);
    post_receive(&pair->right, 3, 0, 64);
    for (int inlined = 0; inlined < 2; inlined++) {
        list[0] = list[1] = (struct ibv_sge){UINT64_MAX, 0, 0};
        wr = send_of(list, 2, inlined ? IBV_SEND_INLINE : 0);
        CHECK_EQ(ibv_post_send(pair->left.qp, &wr, &bad), 0);
        CHECK_EQ(next_completion(pair->left.cq, pair->right.cq).status, IBV_WC_SUCCESS);
        CHECK_EQ(next_completion(pair->right.cq, pair->left.cq).byte_len, 0);
    }
}

/* What one request of the extended interface comes to, begun by `begin` and given its data by
 * `set`. */
#define EXTENDED(pair, set)                                                                        \
    ({                                                                                             \
        struct ibv_qp_ex *qp = ibv_qp_to_qp_ex((pair)->left.qp);                                   \
        ibv_wr_start(qp);                                                                          \
        qp->wr_flags = IBV_SEND_SIGNALED;                                                          \
        ibv_wr_send(qp);                                                                           \
        set;                                                                                       \
        ibv_wr_complete(qp);                                                                       \
    })

static void check_extended(struct pair *pair)
{
    struct ibv_data_buf pieces[4];
    struct ibv_sge list[4] = {{0}};
    const size_t lengths[] = {65, 1u << 30, 1u << 31, UINT32_MAX, 1ul << 32, SIZE_MAX};

    for (unsigned i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        CHECK_EQ(EXTENDED(pair, ibv_wr_set_inline_data(qp, page, lengths[i])), EINVAL);
        for (int j = 0; j < 4; j++)
            pieces[j] = (struct ibv_data_buf){page, lengths[i]};
        for (int count = 1; count <= 4; count++)
            CHECK_EQ(EXTENDED(pair, ibv_wr_set_inline_data_list(qp, count, pieces)), EINVAL);
        if (i) {
            CHECK_EQ(EXTENDED(pair, ibv_wr_set_inline_data_list(qp, lengths[i], pieces)), EINVAL);
            CHECK_EQ(EXTENDED(pair, ibv_wr_set_sge_list(qp, lengths[i], list)), EINVAL);
        }
    }
    /* Sums that wrap around to something small. */
    pieces[0] = (struct ibv_data_buf){page, SIZE_MAX};
    pieces[1] = (struct ibv_data_buf){page, 9};
    CHECK_EQ(EXTENDED(pair, ibv_wr_set_inline_data_list(qp, 2, pieces)), EINVAL);
    for (int i = 1; i < HUGE_COUNT; i++)
        CHECK_EQ(EXTENDED(pair, ibv_wr_set_sge(qp, 0, (uintptr_t)page, HUGE_LENGTHS[i])), EINVAL);
    for (int j = 0; j < 4; j++)
        list[j] = (struct ibv_sge){(uintptr_t)page, 1u << 30, 0};
    CHECK_EQ(EXTENDED(pair, ibv_wr_set_sge_list(qp, 4, list)), EINVAL);
    post_receive(&pair->right, 2, 0, 64);
    CHECK_EQ(EXTENDED(pair, ibv_wr_set_inline_data(qp, NULL, 0)), 0);
    CHECK_EQ(next_completion(pair->left.cq, pair->right.cq).status, IBV_WC_SUCCESS);
    CHECK_EQ(next_completion(pair->right.cq, pair->left.cq).byte_len, 0);
}

/* Receives may have any length: it is the message that counts. */
static void check_receives(struct pair *pair)
{
    struct ibv_srq_init_attr init = {.attr = {8, 4, 0}};
    struct ibv_srq *srq = ibv_create_srq(pair->pd, &init);
    struct ibv_sge list[4];
    struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = list}, *bad;
    const int counts[] = {-1, INT32_MIN, 33, INT32_MAX};

    CHECK(srq);
    for (int j = 0; j < 4; j++)
        list[j] = (struct ibv_sge){(uintptr_t)pair->right.buffer, UINT32_MAX, 0};
    for (unsigned i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
        wr.num_sge = counts[i];
        bad = NULL;
        CHECK_EQ(ibv_post_recv(pair->right.qp, &wr, &bad), EINVAL);
        CHECK(bad == &wr);
        CHECK_EQ(ibv_post_srq_recv(srq, &wr, &bad), EINVAL);
    }
    for (wr.num_sge = 0; wr.num_sge <= 4; wr.num_sge++)
        CHECK_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
    CHECK_EQ(ibv_destroy_srq(srq), 0);
}

static void check_polls(struct pair *pair)
{
    struct ibv_wc wc;

    CHECK_EQ(ibv_poll_cq(pair->left.cq, INT32_MAX, &wc), 0);
    CHECK_EQ(ibv_poll_cq(pair->left.cq, 0, NULL), 0);
    CHECK(ibv_poll_cq(pair->left.cq, -1, &wc) < 0);
    CHECK(ibv_poll_cq(pair->left.cq, INT32_MIN, &wc) < 0);
}

static void check_regions(struct pair *pair)
{
    const size_t lengths[] = {0, 1u << 31, UINT32_MAX, 1ul << 32, SIZE_MAX};

    for (unsigned i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        size_t length = lengths[i];
        int access = IBV_ACCESS_LOCAL_WRITE;
        struct ibv_mr *mr = pair->left.mr;

        CHECK(!ibv_reg_mr(pair->pd, page, length, access));
        CHECK(!ibv_reg_mr_iova(pair->pd, page, length, 0, access));
        CHECK(!ibv_reg_mr_iova2(pair->pd, page, length, UINT64_MAX, access));
        CHECK(!ibv_reg_dmabuf_mr(pair->pd, UINT64_MAX - 7, length, 0, -1, access));
        CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, page, length, 0));
    }
    CHECK_EQ(pair->left.mr->length, BUFFER_BYTES);
}

static void check_device_memory(struct pair *pair)
{
    struct ibv_alloc_dm_attr attr = {.length = 64};
    struct ibv_dm *dm = ibv_alloc_dm(pair->context, &attr);
    const uint64_t lengths[] = {1u << 31, UINT32_MAX - 3, UINT64_MAX - 3};

    CHECK(dm);
    CHECK_EQ(ibv_memcpy_to_dm(dm, 64, page, 0), 0);
    CHECK_EQ(ibv_memcpy_from_dm(page, dm, 64, 0), 0);
    for (int i = 0; i < 3; i++) {
        attr.length = lengths[i];
        CHECK(!ibv_alloc_dm(pair->context, &attr));
        CHECK(ibv_memcpy_to_dm(dm, 0, page, lengths[i]));
        CHECK(ibv_memcpy_to_dm(dm, lengths[i], page, 8));
        CHECK(ibv_memcpy_from_dm(page, dm, 4, lengths[i]));
        CHECK(ibv_memcpy_from_dm(page, dm, lengths[i], 8));
        CHECK(!ibv_reg_dm_mr(pair->pd, dm, 4, lengths[i], IBV_ACCESS_ZERO_BASED));
        CHECK(!ibv_reg_dm_mr(pair->pd, dm, lengths[i], 8, IBV_ACCESS_ZERO_BASED));
    }
    attr.length = 0;
    CHECK(!ibv_alloc_dm(pair->context, &attr));
    CHECK_EQ(ibv_free_dm(dm), 0);
}

/* Counts of a list that has one element. */
static void check_counts(struct pair *pair)
{
    struct ibv_gid_entry *entries = (struct ibv_gid_entry *)page;
    struct ibv_sge *last = (struct ibv_sge *)(page + PAGE) - 1;
    struct ibv_mr *mr = ibv_reg_mr(pair->pd, pair->left.buffer, PAGE,
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);

    CHECK(mr);
    *last = (struct ibv_sge){(uintptr_t)pair->left.buffer, PAGE, mr->lkey};
    CHECK_EQ(ibv_advise_mr(pair->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, last, 1), 0);
    for (unsigned i = 0; i < HUGE_COUNT; i++) {
        uint32_t count = HUGE_LENGTHS[i];

        CHECK_EQ(ibv_advise_mr(pair->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, last, count), EINVAL);
        CHECK(_ibv_query_gid_table(pair->context, entries, 1, 0, count) < 0);
        CHECK_EQ(_ibv_query_gid_ex(pair->context, 1, 0, entries, 0, count), EINVAL);
    }
    CHECK_EQ(ibv_advise_mr(pair->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, last, 0), EINVAL);
    CHECK(ibv_query_gid_table(pair->context, NULL, 0, 0) <= 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
}

static void check_sizes(struct pair *pair)
{
    struct ibv_cq *cq = pair->left.cq;
    const uint32_t sizes[] = {1u << 30, 1u << 31, UINT32_MAX};

    CHECK(!ibv_create_cq(pair->context, 0, NULL, NULL, 0));
    CHECK(ibv_resize_cq(cq, 0));
    for (int i = 0; i < 3; i++) {
        uint32_t size = sizes[i];
        struct ibv_cq_init_attr_ex attr = {.cqe = size};
        struct ibv_srq_init_attr srq[] = {{.attr = {size, 1, 0}}, {.attr = {1, size, 0}}};
        struct ibv_qp_cap caps[] = {
            {size, 1, 1, 1, 0}, {1, size, 1, 1, 0}, {1, 1, size, 1, 0},
            {1, 1, 1, size, 0}, {1, 1, 1, 1, size},
        };

        CHECK(!ibv_create_cq(pair->context, (int)size, NULL, NULL, 0));
        CHECK(!ibv_create_cq_ex(pair->context, &attr));
        CHECK(ibv_resize_cq(cq, (int)size));
        for (int j = 0; j < 2; j++)
            CHECK(!ibv_create_srq(pair->pd, &srq[j]));
        for (int j = 0; j < 5; j++) {
            struct ibv_qp_init_attr init = {
                .send_cq = cq, .recv_cq = cq, .cap = caps[j], .qp_type = IBV_QPT_RC};

            CHECK(!ibv_create_qp(pair->pd, &init));
        }
    }
}

/* A window that ends beyond its region, or beyond all addresses. */
static void check_windows(struct pair *pair)
{
    struct ibv_mr *mr =
        ibv_reg_mr(pair->pd, pair->left.buffer, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    const uint64_t lengths[] = {1u << 31, UINT32_MAX, UINT64_MAX};
    struct ibv_mw *mw = ibv_alloc_mw(pair->pd, IBV_MW_TYPE_1);

    CHECK(mr && mw);
    for (int i = 0; i < 3; i++) {
        struct ibv_mw_bind bind = {
            .send_flags = IBV_SEND_SIGNALED,
            .bind_info = {mr, (uintptr_t)pair->left.buffer, lengths[i], IBV_ACCESS_REMOTE_READ}};
        struct pair other;

        CHECK_EQ(ibv_bind_mw(pair->left.qp, mw, &bind), 0);
        CHECK_EQ(next_completion(pair->left.cq, pair->right.cq).status, IBV_WC_MW_BIND_ERR);
        /* That ended the connection. */
        CHECK_EQ(ibv_dealloc_mw(mw), 0);
        CHECK_EQ(ibv_dereg_mr(mr), 0);
        other = make_pair((struct pair_options){0});
        destroy_pair(pair);
        *pair = other;
        CHECK((mr = ibv_reg_mr(pair->pd, pair->left.buffer, PAGE,
                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)) != NULL);
        CHECK((mw = ibv_alloc_mw(pair->pd, IBV_MW_TYPE_1)) != NULL);
    }
    CHECK_EQ(ibv_dealloc_mw(mw), 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
}

/* Commands of RDMA-CM whose header says more than was written, and writes of more than there can
 * be. */
static void check_commands(void)
{
    int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
    struct {
        uint32_t number;
        uint16_t in, out;
    } *header = (void *)(page + PAGE - 8);
    const size_t counts[] = {0, 7, 1u << 31, UINT32_MAX, SIZE_MAX};

    CHECK(fd >= 0);
    *header = (typeof(*header)){0, UINT16_MAX, UINT16_MAX};
    CHECK_EQ(write(fd, header, 8), -1);
    CHECK_EQ(errno, EINVAL);
    /* Only the header is there. An unknown command needs no more. */
    *header = (typeof(*header)){99, 0, 0};
    for (unsigned i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
        /* The compiler knows that nothing is as large. */
        volatile size_t count = counts[i];

        errno = 0;
        CHECK_EQ(write(fd, header, count), -1);
        CHECK_EQ(errno, EINVAL);
    }
    CHECK_EQ(close(fd), 0);
}

int main(void)
{
    struct rlimit limit = {1ul << 30, 1ul << 30};
    struct pair pair;

    page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    CHECK_EQ(mprotect(page + PAGE, PAGE, PROT_NONE), 0);
    /* Sanitizers reserve terabytes. */
    if (!getenv("ASAN_OPTIONS"))
        CHECK_EQ(setrlimit(RLIMIT_DATA, &limit), 0);
    pair = make_pair((struct pair_options){.send_ops = IBV_QP_EX_WITH_SEND});
    check_sends(&pair);
    check_extended(&pair);
    check_receives(&pair);
    check_polls(&pair);
    check_regions(&pair);
    check_device_memory(&pair);
    check_counts(&pair);
    check_sizes(&pair);
    check_windows(&pair);
    check_commands();
    destroy_pair(&pair);
    return 0;
}
