/* Objects that outlive what they stand on: memory that is unmapped while peers and requests use it,
 * regions that become other regions, and devices that are closed while there are objects. */
#include <dirent.h>

#include "apart.h"

enum {
    PAGE = 4096,
    LONG = 16 * PAGE, /* longer than a packet, and than what is copied when it is sent */
    ACCESS = IBV_ACCESS_LOCAL_WRITE | ALL_REMOTE | IBV_ACCESS_ON_DEMAND,
};

/* The status of a request of the left side over `local`. */
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
    struct ibv_wc wc;

    CHECK_EQ(ibv_post_send(pair->left.qp, &wr, &bad), 0);
    wc = next_completion(pair->left.cq, pair->right.cq);
    CHECK_EQ(wc.wr_id, 7);
    return wc.status;
}

/* The end of the memory is gone when it is used: the request fails, whichever end it is at, and
 * both ends live. */
static void check_unmapped(enum ibv_wr_opcode opcode, bool at_peer, enum ibv_wc_status expected)
{
    struct pair pair = make_pair((struct pair_options){0});
    char *memory = map_apart(LONG, PROT_READ | PROT_WRITE);
    struct ibv_sge local = {(uintptr_t)pair.left.buffer, LONG, pair.left.mr->lkey};
    uint64_t remote = (uintptr_t)pair.right.buffer;
    uint32_t rkey = pair.right.mr->rkey;
    struct ibv_mr *mr;
    struct pair again;

    CHECK((mr = ibv_reg_mr(pair.pd, memory, LONG, ACCESS)) != NULL);
    if (at_peer) {
        remote = (uintptr_t)memory;
        rkey = mr->rkey;
    } else {
        local.addr = (uintptr_t)memory;
        local.lkey = mr->lkey;
    }
    CHECK_EQ(status_of(&pair, opcode, local, remote, rkey), IBV_WC_SUCCESS);
    CHECK_EQ(munmap(memory + LONG - PAGE, PAGE), 0);
    CHECK_EQ(status_of(&pair, opcode, local, remote, rkey), expected);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(munmap(memory, LONG - PAGE), 0);
    destroy_pair(&pair);
    /* The device goes on. */
    again = make_pair((struct pair_options){0});
    local = (struct ibv_sge){(uintptr_t)again.left.buffer, 8, again.left.mr->lkey};
    CHECK_EQ(status_of(&again, IBV_WR_RDMA_WRITE, local, (uintptr_t)again.right.buffer,
                       again.right.mr->rkey),
             IBV_WC_SUCCESS);
    destroy_pair(&again);
}

/* A receive whose memory is gone: an error at both ends. */
static void check_unmapped_receive(void)
{
    struct pair pair = make_pair((struct pair_options){0});
    char *memory = map_apart(PAGE, PROT_READ | PROT_WRITE);
    struct ibv_mr *mr = ibv_reg_mr(pair.pd, memory, PAGE, ACCESS);
    struct ibv_sge to = {(uintptr_t)memory, 64, mr->lkey},
                   local = {(uintptr_t)pair.left.buffer, 64, pair.left.mr->lkey};
    struct ibv_recv_wr receive = {.wr_id = 9, .sg_list = &to, .num_sge = 1}, *bad;
    struct ibv_wc wc;

    CHECK(mr);
    CHECK_EQ(ibv_post_recv(pair.right.qp, &receive, &bad), 0);
    CHECK_EQ(munmap(memory, PAGE), 0);
    CHECK_EQ(status_of(&pair, IBV_WR_SEND, local, 0, 0), IBV_WC_REM_OP_ERR);
    wc = next_completion(pair.right.cq, pair.left.cq);
    CHECK_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
    CHECK_EQ(wc.wr_id, 9);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    destroy_pair(&pair);
}

/* A region that is registered again keeps its keys, and its new rights and memory count at once. */
static void check_registered_again(void)
{
    struct pair pair = make_pair((struct pair_options){0}), other;
    struct ibv_mr *mr = pair.right.mr;
    uint64_t remote = (uintptr_t)pair.right.buffer;
    uint32_t lkey = mr->lkey, rkey = mr->rkey;
    struct ibv_sge local = {(uintptr_t)pair.left.buffer, 8, pair.left.mr->lkey};
    struct ibv_pd *pd;

    CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, NULL,
                          pair.right.buffer, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ),
             0);
    CHECK(mr->lkey == lkey && mr->rkey == rkey && mr->length == PAGE);
    CHECK_EQ(status_of(&pair, IBV_WR_RDMA_READ, local, remote + PAGE - 8, rkey), IBV_WC_SUCCESS);
    CHECK_EQ(status_of(&pair, IBV_WR_RDMA_READ, local, remote + PAGE - 7, rkey),
             IBV_WC_REM_ACCESS_ERR);
    destroy_pair(&pair);

    other = make_pair((struct pair_options){0});
    mr = other.right.mr;
    CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_READ),
             0);
    local = (struct ibv_sge){(uintptr_t)other.left.buffer, 8, other.left.mr->lkey};
    remote = (uintptr_t)other.right.buffer;
    CHECK_EQ(status_of(&other, IBV_WR_RDMA_READ, local, remote, mr->rkey), IBV_WC_SUCCESS);
    CHECK_EQ(status_of(&other, IBV_WR_RDMA_WRITE, local, remote, mr->rkey), IBV_WC_REM_ACCESS_ERR);
    destroy_pair(&other);

    /* Of another protection domain, it is closed to the queue pairs of the old one. */
    pair = make_pair((struct pair_options){0});
    CHECK((pd = ibv_alloc_pd(pair.context)) != NULL);
    CHECK_EQ(ibv_rereg_mr(pair.right.mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0), 0);
    local = (struct ibv_sge){(uintptr_t)pair.left.buffer, 8, pair.left.mr->lkey};
    CHECK_EQ(status_of(&pair, IBV_WR_RDMA_READ, local, (uintptr_t)pair.right.buffer,
                       pair.right.mr->rkey),
             IBV_WC_REM_ACCESS_ERR);
    CHECK_EQ(ibv_rereg_mr(pair.right.mr, IBV_REREG_MR_CHANGE_PD, pair.pd, NULL, 0, 0), 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    destroy_pair(&pair);
}

/* The threads of this process (/proc/self/task), or its descriptors (/proc/self/fd). */
static int count_in(const char *path)
{
    DIR *folder = opendir(path);
    int count = 0;

    CHECK(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

static int count_threads(void)
{
    return count_in("/proc/self/task");
}

/* A device that is closed has no thread any more, whatever the program left in it, and if it left
 * nothing no descriptor. */
static void check_closed(void)
{
    int before = count_threads();

    for (int clean = 0; clean < 2; clean++) {
        int descriptors = count_in("/proc/self/fd");
        struct pair pair = make_pair((struct pair_options){.with_channel = true});
        struct ibv_sge local = {(uintptr_t)pair.left.buffer, 8, pair.left.mr->lkey};

        CHECK_EQ(status_of(&pair, IBV_WR_RDMA_WRITE, local, (uintptr_t)pair.right.buffer,
                           pair.right.mr->rkey),
                 IBV_WC_SUCCESS);
        CHECK_EQ(count_threads(),
                 before + 1 + !clean); /* one for each device, one that tells about them */
        before += !clean;
        post_receive(&pair.right, 1, 0, 64);
        if (clean)
            destroy_pair(&pair);
        else
            CHECK_EQ(ibv_close_device(pair.context), 0);
        CHECK_EQ(count_threads(), before);
        if (clean)
            CHECK_EQ(count_in("/proc/self/fd"), descriptors);
    }
}

int main(void)
{
    check_closed();
    check_unmapped(IBV_WR_RDMA_READ, true, IBV_WC_REM_ACCESS_ERR);
    check_unmapped(IBV_WR_RDMA_WRITE, true, IBV_WC_REM_ACCESS_ERR);
    check_unmapped(IBV_WR_RDMA_READ, false, IBV_WC_LOC_PROT_ERR);
    check_unmapped(IBV_WR_RDMA_WRITE, false, IBV_WC_LOC_PROT_ERR);
    check_unmapped_receive();
    check_registered_again();
    return 0;
}
