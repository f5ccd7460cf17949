/* What can be registered, and registered again: memory that is mapped with the rights that are
 * asked for. */
#include <unistd.h>

#include "apart.h"

enum { READS = PROT_READ, BOTH = PROT_READ | PROT_WRITE, MAPPINGS = 1000 };

static size_t page;

/* `count` pages of anonymous memory, none of them there yet. */
static char *pages(size_t count, int rights)
{
    return map_apart(count * page, rights);
}

static void registers(struct ibv_pd *pd, void *memory, size_t length, int access)
{
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, length, access);

    CHECK(mr);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
}

static void refuses(struct ibv_pd *pd, void *memory, size_t length, int access, int error)
{
    errno = 0;
    CHECK(!ibv_reg_mr(pd, memory, length, access));
    CHECK_EQ(errno, error);
}

static void check_rights(struct ibv_pd *pd)
{
    enum { WRITES = IBV_ACCESS_LOCAL_WRITE };
    char *memory = pages(8, BOTH);

    CHECK_EQ(mprotect(memory + 2 * page, page, READS), 0);
    CHECK_EQ(mprotect(memory + 4 * page, page, PROT_NONE), 0);
    CHECK_EQ(munmap(memory + 6 * page, 2 * page), 0);
    registers(pd, memory + 1, 2 * page - 1, WRITES | ALL_REMOTE);
    registers(pd, memory, 4 * page, 0);
    registers(pd, memory, 4 * page, IBV_ACCESS_REMOTE_READ);
    refuses(pd, memory, 2 * page + 1, WRITES, EFAULT);
    refuses(pd, memory, 2 * page + 1, IBV_ACCESS_MW_BIND, EFAULT);
    refuses(pd, memory, 2 * page + 1, WRITES | IBV_ACCESS_REMOTE_WRITE, EFAULT);
    refuses(pd, memory, 2 * page + 1, WRITES | IBV_ACCESS_REMOTE_ATOMIC, EFAULT);
    refuses(pd, memory + 3 * page, page + 1, 0, EFAULT);
    refuses(pd, memory + 5 * page, page + 1, 0, EFAULT);
    refuses(pd, memory + 6 * page, page, 0, EFAULT);
    refuses(pd, NULL, 1, 0, EFAULT);
    refuses(pd, "constant", 8, WRITES, EFAULT);
    registers(pd, "constant", 8, 0);
    /* What is wrong with the arguments comes first, as in the kernel. */
    refuses(pd, NULL, 1, IBV_ACCESS_REMOTE_WRITE, EINVAL);
    refuses(pd, memory, SIZE_MAX, 0, EINVAL);
    refuses(pd, memory, SIZE_MAX - (uintptr_t)memory, 0, EINVAL);
    /* No byte has no page, but amid one. */
    refuses(pd, memory, 0, 0, EINVAL);
    refuses(pd, NULL, 0, 0, EINVAL);
    registers(pd, memory + 1, 0, 0);
    refuses(pd, memory + 6 * page + 1, 0, 0, EFAULT);
    /* On demand everything is allowed. */
    registers(pd, memory, 8 * page, WRITES | IBV_ACCESS_ON_DEMAND);
    CHECK_EQ(munmap(memory, 6 * page), 0);
}

/* Nothing becomes resident by being registered. */
static void check_untouched(struct ibv_pd *pd)
{
    enum { PAGES = 16 };
    char *memory = pages(PAGES, BOTH);
    unsigned char resident[PAGES];

    registers(pd, memory, PAGES * page, IBV_ACCESS_LOCAL_WRITE);
    CHECK_EQ(mincore(memory, PAGES * page, resident), 0);
    for (int i = 0; i < PAGES; i++)
        CHECK_EQ(resident[i] & 1, 0);
    CHECK_EQ(munmap(memory, PAGES * page), 0);
}

/* A process of many mappings: a region that is one of them, and one of all of them. */
static void check_many(struct ibv_pd *pd, bool is_measured)
{
    char *memory = pages(2 * MAPPINGS, READS);
    double start;

    for (size_t i = 0; i < MAPPINGS; i++)
        CHECK_EQ(mprotect(memory + 2 * i * page, page, BOTH), 0);
    refuses(pd, memory, 2 * MAPPINGS * page, IBV_ACCESS_LOCAL_WRITE, EFAULT);
    registers(pd, memory, 2 * MAPPINGS * page, 0);
    start = seconds();
    for (size_t i = 0; i < MAPPINGS; i++)
        registers(pd, memory + 2 * i * page, page, IBV_ACCESS_LOCAL_WRITE);
    if (is_measured)
        printf("%.2f us for a region\n", (seconds() - start) * 1e6 / MAPPINGS);
    CHECK_EQ(munmap(memory, 2 * MAPPINGS * page), 0);
}

/* What libibverbs refuses itself is ERR_INPUT, what a device refuses ERR_CMD. */
static void check_registered_again(struct ibv_pd *pd)
{
    enum {
        MEMORY = IBV_REREG_MR_CHANGE_TRANSLATION,
        DOMAIN = IBV_REREG_MR_CHANGE_PD,
        RIGHTS = IBV_REREG_MR_CHANGE_ACCESS,
        ALL = IBV_REREG_MR_FLAGS_SUPPORTED,
        INPUT = IBV_REREG_MR_ERR_INPUT,
        CMD = IBV_REREG_MR_ERR_CMD,
    };
    char *memory = pages(2, BOTH), *gone = pages(1, BOTH), *constant = pages(1, READS);
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, page, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_mr *null = ibv_alloc_null_mr(pd);
    struct {
        int flags;
        struct ibv_pd *pd;
        void *addr;
        size_t length;
        int access, code, error;
    } cases[] = {
        {0, NULL, NULL, 0, 0, CMD, EINVAL},
        {ALL + 1, pd, memory, page, 0, INPUT, EINVAL},
        {1 << 10, NULL, NULL, 0, 0, INPUT, EINVAL},
        {MEMORY, NULL, memory, 0, 0, INPUT, EINVAL},
        {MEMORY, NULL, NULL, page, 0, INPUT, EINVAL},
        {DOMAIN, NULL, NULL, 0, 0, INPUT, EINVAL},
        {MEMORY, NULL, memory, page, IBV_ACCESS_LOCAL_WRITE, INPUT, EINVAL},
        {DOMAIN, pd, NULL, 0, IBV_ACCESS_REMOTE_READ, INPUT, EINVAL},
        {RIGHTS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE, CMD, EINVAL},
        {RIGHTS, NULL, NULL, 0, 1 << 30, CMD, EINVAL},
        {MEMORY, NULL, gone, page, 0, CMD, EFAULT},
        {MEMORY, NULL, memory + page, 2 * page, 0, CMD, EFAULT},
        {MEMORY, NULL, constant, page, 0, CMD, EFAULT},
        {MEMORY, NULL, memory, SIZE_MAX, 0, CMD, EINVAL},
    };

    CHECK(mr && null);
    CHECK_EQ(munmap(gone, page), 0);
    CHECK_EQ(munmap(memory + page, page), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        errno = 0;
        CHECK_EQ(ibv_rereg_mr(mr, cases[i].flags, cases[i].pd, cases[i].addr, cases[i].length,
                              cases[i].access),
                 cases[i].code);
        CHECK_EQ(errno, cases[i].error);
        CHECK(mr->addr == memory && mr->length == page && mr->pd == pd);
    }
    CHECK_EQ(ibv_rereg_mr(mr, MEMORY | RIGHTS, NULL, constant, page, IBV_ACCESS_REMOTE_READ), 0);
    CHECK_EQ(ibv_rereg_mr(mr, RIGHTS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE), CMD);
    CHECK_EQ(errno, EFAULT);
    CHECK_EQ(ibv_rereg_mr(mr, RIGHTS, NULL, NULL, 0, 0), 0);
    CHECK_EQ(ibv_rereg_mr(null, MEMORY, NULL, memory, page, 0), INPUT);
    CHECK_EQ(ibv_dereg_mr(null), 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(munmap(memory, page), 0);
    CHECK_EQ(munmap(constant, page), 0);
}

/* With an argument it also says how long a region takes. */
int main(int argc, char **argv)
{
    struct ibv_context *context = open_loopback();
    struct ibv_pd *pd = ibv_alloc_pd(context);

    (void)argv;
    page = sysconf(_SC_PAGESIZE);
    CHECK(pd);
    check_rights(pd);
    check_untouched(pd);
    check_many(pd, argc > 1);
    check_registered_again(pd);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    CHECK_EQ(ibv_close_device(context), 0);
    return 0;
}
