/* Verbs that are newer than the header that this is compiled with. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "urxe_test.h"

enum { BYTES = 10000, ACCESS = IBV_ACCESS_LOCAL_WRITE | ALL_REMOTE };

/* As <infiniband/verbs.h> of rdma-core 65 has it. */
struct mr_init_attr {
    size_t length;
    int access;
    uint64_t comp_mask;
    uint64_t iova;
    void *addr;
    int fd;
    uint64_t fd_offset;
    void *dmah;
    void *buf;
};
enum { IOVA = 1, ADDR = 2, FD = 4, FD_OFFSET = 8, DMAH = 16, BUF = 32, UNKNOWN = 1 << 20 };

static struct ibv_mr *(*reg_mr_ex)(struct ibv_pd *, struct mr_init_attr *);
static void *(*alloc_buf)(struct ibv_pd *, size_t, void **);
static void (*free_buf)(void *);
static struct ibv_mr *(*reg_buf_mr)(struct ibv_pd *, void *, void *, size_t, int);
static int (*export_buf)(void *);
static int (*export_dm)(struct ibv_dm *);
static int (*query_port_speed)(struct ibv_context *, uint32_t, uint64_t *);

static void *verb(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);

    if (!found)
        printf("%s is not there\n", name);
    CHECK(found);
    return found;
}

/* Writes to the first bytes of `mr`, which peers call `remote`, and finds them at `bytes`. */
static void write_to(struct pair *pair, struct ibv_mr *mr, uint64_t remote, const char *bytes)
{
    struct ibv_sge sge = {(uintptr_t)pair->left.buffer, 8, pair->left.mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {remote, mr->rkey}},
                       *bad;

    strcpy((char *)pair->left.buffer, "written");
    CHECK_EQ(ibv_post_send(pair->left.qp, &wr, &bad), 0);
    CHECK_EQ(next_completion(pair->left.cq, pair->right.cq).status, IBV_WC_SUCCESS);
    CHECK(!strcmp(bytes, "written"));
}

#define CHECK_REFUSED(call, error)                                                                 \
    do {                                                                                           \
        errno = 0;                                                                                 \
        CHECK((call) == NULL);                                                                     \
        CHECK_EQ(errno, error);                                                                    \
    } while (0)

static void check_any_memory(struct pair *pair)
{
    static char memory[BYTES];
    struct mr_init_attr attr = {
        .length = BYTES, .access = ACCESS, .comp_mask = ADDR, .addr = memory};
    struct ibv_mr *mr;

    CHECK((mr = reg_mr_ex(pair->pd, &attr)) != NULL);
    CHECK(mr->addr == memory && mr->length == BYTES && mr->pd == pair->pd);
    write_to(pair, mr, (uintptr_t)memory, memory);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    attr.comp_mask = ADDR | IOVA;
    attr.iova = 0x70000;
    CHECK((mr = reg_mr_ex(pair->pd, &attr)) != NULL);
    write_to(pair, mr, 0x70010, memory + 0x10);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    attr.comp_mask = 0;
    CHECK_REFUSED(reg_mr_ex(pair->pd, &attr), EINVAL);
    attr.comp_mask = ADDR | FD | FD_OFFSET | IOVA;
    CHECK_REFUSED(reg_mr_ex(pair->pd, &attr), EINVAL);
    attr.comp_mask = ADDR | DMAH;
    CHECK_REFUSED(reg_mr_ex(pair->pd, &attr), EOPNOTSUPP);
    attr.comp_mask = ADDR | UNKNOWN;
    CHECK_REFUSED(reg_mr_ex(pair->pd, &attr), EOPNOTSUPP);
    CHECK_REFUSED(reg_mr_ex(NULL, &attr), EINVAL);
    CHECK_REFUSED(reg_mr_ex(pair->pd, NULL), EINVAL);
}

static void check_buffers(struct pair *pair)
{
    struct ibv_pd *other = ibv_alloc_pd(pair->context);
    struct mr_init_attr attr = {.length = 100, .access = ACCESS, .comp_mask = ADDR | BUF};
    struct ibv_mr *mr;
    void *handle = NULL;
    char *bytes = alloc_buf(pair->pd, BYTES, &handle);

    CHECK(other && bytes && handle);
    CHECK_EQ((uintptr_t)bytes % 4096, 0);
    CHECK((mr = reg_buf_mr(pair->pd, handle, bytes + 100, BYTES - 100, ACCESS)) != NULL);
    write_to(pair, mr, (uintptr_t)bytes + 100, bytes + 100);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    attr.addr = bytes;
    attr.buf = handle;
    CHECK((mr = reg_mr_ex(pair->pd, &attr)) != NULL);
    write_to(pair, mr, (uintptr_t)bytes, bytes);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_REFUSED(reg_buf_mr(pair->pd, handle, bytes + 1, BYTES, ACCESS), EINVAL);
    CHECK_REFUSED(reg_buf_mr(pair->pd, handle, bytes - 1, 10, ACCESS), EINVAL);
    CHECK_REFUSED(reg_buf_mr(other, handle, bytes, BYTES, ACCESS), EINVAL);
    CHECK_EQ(export_buf(handle), -1);
    CHECK_EQ(errno, ENODATA);
    CHECK_EQ(ibv_dealloc_pd(pair->pd), EBUSY);
    free_buf(handle);
    CHECK_REFUSED(alloc_buf(pair->pd, 0, &handle), EINVAL);
    CHECK_REFUSED(alloc_buf(pair->pd, BYTES, NULL), EINVAL);
    CHECK_REFUSED(alloc_buf(pair->pd, SIZE_MAX / 2, &handle), ENOMEM);
    CHECK_EQ(ibv_dealloc_pd(other), 0);
}

/* A file that can be mapped stands for memory of another device. */
static void check_descriptors(struct pair *pair)
{
    int file = memfd_create("memory", MFD_CLOEXEC), pipes[2];
    struct mr_init_attr attr = {.length = 4096,
                                .access = ACCESS,
                                .comp_mask = FD | FD_OFFSET | IOVA,
                                .iova = 0x5000,
                                .fd = file,
                                .fd_offset = 4096};
    struct ibv_mr *mr;
    char read[8];

    CHECK(file >= 0 && !ftruncate(file, 3 * 4096));
    CHECK((mr = ibv_reg_dmabuf_mr(pair->pd, 100, 5000, 0x1000, file, ACCESS)) != NULL);
    CHECK(mr->length == 5000 && mr->pd == pair->pd);
    write_to(pair, mr, 0x1000 + 4000, "written");
    CHECK_EQ(pread(file, read, 8, 4100), 8);
    CHECK(!strcmp(read, "written"));
    CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0), -1);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK((mr = reg_mr_ex(pair->pd, &attr)) != NULL);
    write_to(pair, mr, 0x5008, "written");
    CHECK_EQ(pread(file, read, 8, 4104), 8);
    CHECK(!strcmp(read, "written"));
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    attr.comp_mask = FD | IOVA;
    CHECK_REFUSED(reg_mr_ex(pair->pd, &attr), EINVAL);
    /* What a program asks that wants to know whether a GPU's memory can be registered. */
    CHECK_REFUSED(ibv_reg_dmabuf_mr(pair->pd, 0, 4096, 0, -1, ACCESS), EOPNOTSUPP);
    CHECK_REFUSED(ibv_reg_dmabuf_mr(pair->pd, 0, 4096, 0, 9999, ACCESS), EOPNOTSUPP);
    CHECK_REFUSED(ibv_reg_dmabuf_mr(pair->pd, 0, 0, 0, file, ACCESS), EINVAL);
    CHECK_REFUSED(ibv_reg_dmabuf_mr(pair->pd, 0, 4096, 0, file, IBV_ACCESS_ON_DEMAND), EINVAL);
    CHECK(!pipe(pipes));
    CHECK_REFUSED(ibv_reg_dmabuf_mr(pair->pd, 0, 4096, 0, pipes[0], 0), EOPNOTSUPP);
    close(pipes[0]);
    close(pipes[1]);
    close(file);
}

static void check_device_memory(struct pair *pair)
{
    struct ibv_alloc_dm_attr attr = {.length = 6000};
    struct ibv_dm *dm = ibv_alloc_dm(pair->context, &attr);
    struct ibv_mr *mr;
    char text[8];
    int file;

    CHECK(dm);
    CHECK((file = export_dm(dm)) >= 0);
    CHECK(fcntl(file, F_GETFD) & FD_CLOEXEC);
    CHECK((mr = ibv_reg_dmabuf_mr(pair->pd, 0, 6000, 0, file, ACCESS)) != NULL);
    write_to(pair, mr, 5000, "written");
    CHECK_EQ(ibv_memcpy_from_dm(text, dm, 5000, 8), 0);
    CHECK(!strcmp(text, "written"));
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(ibv_free_dm(dm), 0);
    CHECK_EQ(close(file), 0); /* the program's, also after the memory is gone */
}

static void check_speed(struct ibv_context *context)
{
    uint64_t speed = 0;

    CHECK_EQ(query_port_speed(context, 1, &speed), 0);
    CHECK_EQ(speed, 250); /* loopback has no wire: 25 Gbps, in units of 100 Mbps */
    CHECK_EQ(query_port_speed(context, 2, &speed), EINVAL);
    CHECK_EQ(query_port_speed(context, 1, NULL), EINVAL);
}

enum {
    WITH_FLUSH = 1 << 11, /* IBV_QP_EX_WITH_FLUSH */
    ACCESS_FLUSH_GLOBAL = 1 << 8,
    ACCESS_FLUSH_PERSISTENT = 1 << 9,
    GLOBAL = 1,     /* IBV_FLUSH_GLOBAL */
    PERSISTENT = 2, /* IBV_FLUSH_PERSISTENT */
    RANGE = 0,      /* IBV_FLUSH_RANGE */
    ALL = 1,        /* IBV_FLUSH_MR */
    WC_FLUSH = 8,   /* IBV_WC_FLUSH */
    CAN_FLUSH = 38, /* bits of device_cap_flags_ex */
    CAN_WRITE_ATOMICALLY = 40,
};

/* `wr_flush` is the first function behind those of this header. */
static void flush(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote, size_t length, uint8_t type,
                  uint8_t level)
{
    typedef void wr_flush(struct ibv_qp_ex *, uint32_t, uint64_t, size_t, uint8_t, uint8_t);

    (*(wr_flush **)(qp + 1))(qp, rkey, remote, length, type, level);
}

static void check_atomic_writes_and_flushes(void)
{
    enum { OPS = IBV_QP_EX_WITH_ATOMIC_WRITE | WITH_FLUSH };
    struct pair pair = make_pair(
        (struct pair_options){.send_ops = OPS, .qp_access = ALL_REMOTE | ACCESS_FLUSH_GLOBAL});
    struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(pair.left.qp);
    static uint64_t memory[8];
    struct ibv_mr *mr = ibv_reg_mr(pair.pd, memory, sizeof(memory), ACCESS | ACCESS_FLUSH_GLOBAL);
    struct ibv_send_wr wr, *bad;
    struct ibv_device_attr_ex device;
    uint64_t value = 0x1122334455667788;
    struct ibv_sge sge;
    struct ibv_wc wc;

    CHECK(qp && mr);
    CHECK_EQ(ibv_query_device_ex(pair.context, NULL, &device), 0);
    CHECK(device.device_cap_flags_ex >> CAN_FLUSH & 1);
    CHECK(device.device_cap_flags_ex >> CAN_WRITE_ATOMICALLY & 1);
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_start(qp);
    qp->wr_id = 1;
    ibv_wr_atomic_write(qp, mr->rkey, (uintptr_t)&memory[2], &value);
    qp->wr_id = 2;
    flush(qp, mr->rkey, (uintptr_t)memory, sizeof(memory), GLOBAL, RANGE);
    qp->wr_id = 3;
    flush(qp, mr->rkey, 0, 0, GLOBAL, ALL);
    CHECK_EQ(ibv_wr_complete(qp), 0);
    for (uint64_t id = 1; id <= 3; id++) {
        wc = next_completion(pair.left.cq, pair.right.cq);
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        CHECK_EQ(wc.wr_id, id);
        CHECK_EQ(wc.opcode, id == 1 ? IBV_WC_ATOMIC_WRITE : WC_FLUSH);
    }
    CHECK_EQ(memory[2], value);
    /* The older way of posting has the first, too. */
    memcpy(pair.left.buffer, &value, sizeof(value));
    wr = request(&pair.left, &sge, 4, IBV_WR_ATOMIC_WRITE, 8);
    wr.wr.rdma.remote_addr = (uintptr_t)&memory[5];
    wr.wr.rdma.rkey = mr->rkey;
    CHECK_EQ(ibv_post_send(pair.left.qp, &wr, &bad), 0);
    CHECK_EQ(next_completion(pair.left.cq, pair.right.cq).status, IBV_WC_SUCCESS);
    CHECK_EQ(memory[5], value);
    ibv_wr_start(qp);
    flush(qp, mr->rkey, 0, 8, 0, RANGE);
    CHECK_EQ(ibv_wr_complete(qp), EINVAL);
    ibv_wr_start(qp);
    flush(qp, mr->rkey, 0, 8, GLOBAL, 7);
    CHECK_EQ(ibv_wr_complete(qp), EINVAL);
    /* No memory of a process survives a loss of power. */
    CHECK_REFUSED(ibv_reg_mr(pair.pd, memory, 64, ACCESS | ACCESS_FLUSH_PERSISTENT), EINVAL);
    ibv_wr_start(qp);
    flush(qp, mr->rkey, (uintptr_t)memory, 8, GLOBAL | PERSISTENT, RANGE);
    CHECK_EQ(ibv_wr_complete(qp), 0);
    CHECK_EQ(next_completion(pair.left.cq, pair.right.cq).status, IBV_WC_REM_ACCESS_ERR);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    destroy_pair(&pair);
}

/* Requests and fields that were not asked for, and of structures longer than ours, are refused. */
static void check_unknown_functions(struct pair *pair)
{
    struct ibv_qp_init_attr_ex attr = {.send_cq = pair->left.cq,
                                       .recv_cq = pair->left.cq,
                                       .cap = {1, 1, 1, 1, 0},
                                       .qp_type = IBV_QPT_RC,
                                       .comp_mask =
                                           IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                                       .send_ops_flags = IBV_QP_EX_WITH_SEND,
                                       .pd = pair->pd};
    struct ibv_qp *qp = ibv_create_qp_ex(pair->context, &attr);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
    typedef void request(struct ibv_qp_ex *, uint32_t, uint64_t);
    struct ibv_cq_init_attr_ex cq_attr = {.cqe = 4, .wc_flags = 0};
    struct ibv_cq_ex *cq = ibv_create_cq_ex(pair->context, &cq_attr), *plain;
    struct ibv_poll_cq_attr poll = {0};

    CHECK(qp && ex && cq);
    ibv_wr_start(ex);
    ibv_wr_rdma_read(ex, 1, 2);
    CHECK_EQ(ibv_wr_complete(ex), EOPNOTSUPP);
    for (int newer = 0; newer < 8; newer++) {
        ibv_wr_start(ex);
        (*(request **)((char *)(ex + 1) + newer * sizeof(request *)))(ex, 1, 2);
        CHECK_EQ(ibv_wr_complete(ex), EOPNOTSUPP);
    }
    CHECK_EQ(ibv_wc_read_completion_ts(cq), 0);
    CHECK_EQ((*(uint64_t (**)(struct ibv_cq_ex *))(cq + 1))(cq), 0);
    plain = (struct ibv_cq_ex *)pair->left.cq;
    CHECK_EQ(ibv_start_poll(plain, &poll), EOPNOTSUPP);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

int main(void)
{
    struct pair pair = make_pair((struct pair_options){0});

    reg_mr_ex = verb("ibv_reg_mr_ex");
    alloc_buf = verb("ibv_alloc_buf");
    free_buf = verb("ibv_free_buf");
    reg_buf_mr = verb("ibv_reg_buf_mr");
    export_buf = verb("ibv_export_buf_dmabuf_fd");
    export_dm = verb("ibv_dm_export_dmabuf_fd");
    query_port_speed = verb("ibv_query_port_speed");
    check_any_memory(&pair);
    check_buffers(&pair);
    check_descriptors(&pair);
    check_device_memory(&pair);
    check_speed(pair.context);
    check_unknown_functions(&pair);
    destroy_pair(&pair);
    check_atomic_writes_and_flushes();
    return 0;
}
