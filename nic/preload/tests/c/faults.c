/* Faults of memory that is registered: threads that block the signals of faults live on when memory
 * is gone. Handlers of the program's are told of memory that it has protected, and of nothing
 * else. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>

#include "apart.h"

enum { PAGE = 4096, ACCESS = IBV_ACCESS_LOCAL_WRITE | ALL_REMOTE };

static char *new_page(void)
{
    return map_apart(PAGE, PROT_READ | PROT_WRITE);
}

/* The status of a WRITE of the left side to a page of the right one's. */
static enum ibv_wc_status status_of_write(struct pair *pair, char *page, uint32_t rkey)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&pair->left, &sge, 7, IBV_WR_RDMA_WRITE, 64), *bad;

    wr.wr.rdma.remote_addr = (uintptr_t)page;
    wr.wr.rdma.rkey = rkey;
    CHECK_EQ(ibv_post_send(pair->left.qp, &wr, &bad), 0);
    return next_completion(pair->left.cq, pair->right.cq).status;
}

/* ---- threads that block the signals of faults ------------------------------------------- */

static void block_by_thread(void)
{
    sigset_t all;

    sigfillset(&all);
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, &all, NULL), 0);
}

static void block_by_process(void)
{
    sigset_t faults;

    sigemptyset(&faults);
    sigaddset(&faults, SIGSEGV);
    sigaddset(&faults, SIGBUS);
    CHECK_EQ(sigprocmask(SIG_BLOCK, &faults, NULL), 0);
}

static void block_by_jump(void)
{
    sigset_t before;
    sigjmp_buf to;

    CHECK_EQ(pthread_sigmask(SIG_BLOCK, NULL, &before), 0);
    block_by_thread();
    if (!sigsetjmp(to, 1)) {
        CHECK_EQ(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
        siglongjmp(to, 1);
    }
}

static void block_by_context(void)
{
    static ucontext_t blocked;
    sigset_t before;
    volatile bool has_returned = false;

    CHECK_EQ(pthread_sigmask(SIG_BLOCK, NULL, &before), 0);
    block_by_thread();
    CHECK_EQ(getcontext(&blocked), 0);
    if (!has_returned) {
        has_returned = true;
        CHECK_EQ(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
        setcontext(&blocked);
    }
}

typedef void (*block)(void);

struct blocked {
    block block;
    bool has_accessed; /* before it blocks them */
};

static void *use_memory_that_is_gone(void *argument)
{
    const struct blocked *blocked = argument;
    struct pair pair = make_pair((struct pair_options){0});
    char *page = new_page();
    struct ibv_mr *mr = ibv_reg_mr(pair.pd, page, PAGE, ACCESS);

    CHECK(mr);
    for (int i = 0; i < 100 && blocked->has_accessed; i++)
        CHECK_EQ(status_of_write(&pair, page, mr->rkey), IBV_WC_SUCCESS);
    blocked->block();
    CHECK_EQ(munmap(page, PAGE), 0);
    CHECK_EQ(status_of_write(&pair, page, mr->rkey), IBV_WC_REM_ACCESS_ERR);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    destroy_pair(&pair);
    return NULL;
}

static void check_blocked(void)
{
    static const block ways[] = {block_by_thread, block_by_process, block_by_jump,
                                 block_by_context};

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int has_accessed = 0; has_accessed < 2; has_accessed++) {
            struct blocked blocked = {ways[i], has_accessed};
            pthread_t thread;

            CHECK_EQ(pthread_create(&thread, NULL, use_memory_that_is_gone, &blocked), 0);
            CHECK_EQ(pthread_join(thread, NULL), 0);
        }
}

static struct {
    struct pair pair;
    char *page;
    struct ibv_mr *mr;
    enum ibv_wc_status status;
} in_handler;

static void use_verbs(int signal)
{
    (void)signal;
    in_handler.status = status_of_write(&in_handler.pair, in_handler.page, in_handler.mr->rkey);
}

/* The kernel blocks what a handler says while it runs, without any call of the program's. */
static void check_blocked_in_handler(void)
{
    struct sigaction action = {.sa_handler = use_verbs}, installed;

    in_handler.pair = make_pair((struct pair_options){0});
    in_handler.page = new_page();
    CHECK(in_handler.mr = ibv_reg_mr(in_handler.pair.pd, in_handler.page, PAGE, ACCESS));
    sigfillset(&action.sa_mask);
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    CHECK_EQ(raise(SIGUSR1), 0);
    CHECK_EQ(in_handler.status, IBV_WC_SUCCESS);
    CHECK_EQ(munmap(in_handler.page, PAGE), 0);
    CHECK_EQ(raise(SIGUSR1), 0);
    CHECK_EQ(in_handler.status, IBV_WC_REM_ACCESS_ERR);
    CHECK_EQ(sigaction(SIGUSR1, NULL, &installed), 0);
    CHECK(installed.sa_handler == use_verbs && sigismember(&installed.sa_mask, SIGTERM));
    CHECK_EQ(ibv_dereg_mr(in_handler.mr), 0);
    destroy_pair(&in_handler.pair);
}

/* ---- handlers of the program's ---------------------------------------------------------- */

static volatile sig_atomic_t faults, is_to_jump;
static char *volatile faulted;
static sigjmp_buf away;
static pthread_t jumper;

static void make_accessible(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    faults++;
    faulted = info->si_addr;
    CHECK_EQ(mprotect((char *)((uintptr_t)info->si_addr & -(uintptr_t)PAGE), PAGE,
                      PROT_READ | PROT_WRITE),
             0);
    if (is_to_jump && pthread_equal(pthread_self(), jumper)) {
        is_to_jump = 0;
        siglongjmp(away, 1);
    }
}

static void install(void)
{
    struct sigaction action = {.sa_sigaction = make_accessible, .sa_flags = SA_SIGINFO};

    CHECK_EQ(sigaction(SIGSEGV, &action, NULL), 0);
}

/* A program that learns of the pages that are written, whether it installs its handler before the
 * memory is registered, or after. */
static void check_tracked(bool is_first)
{
    struct pair pair = make_pair((struct pair_options){0});
    char *page = new_page();
    struct ibv_mr *mr;
    struct ibv_wc wc;

    if (is_first)
        install();
    CHECK(mr = ibv_reg_mr(pair.pd, page, PAGE, ACCESS));
    if (!is_first)
        install();
    memset(pair.left.buffer, 7, 64);
    for (int round = 0; round < 20; round++) {
        faults = 0;
        CHECK_EQ(mprotect(page, PAGE, PROT_READ), 0);
        CHECK_EQ(status_of_write(&pair, page, mr->rkey), IBV_WC_SUCCESS);
        CHECK(!memcmp(page, pair.left.buffer, 64));
        while (!faults)
            CHECK_EQ(ibv_poll_cq(pair.right.cq, 1, &wc), 0);
        CHECK_EQ(faults, 1);
        CHECK(faulted == page);
        CHECK_EQ(status_of_write(&pair, page, mr->rkey), IBV_WC_SUCCESS);
        CHECK_EQ(faults, 1);
    }
    /* The program's own faults are its own, as before. */
    CHECK_EQ(mprotect(page, PAGE, PROT_NONE), 0);
    page[1] = 1;
    CHECK_EQ(faults, 2);
    /* Of what is gone it is not told. */
    CHECK_EQ(munmap(page, PAGE), 0);
    CHECK_EQ(status_of_write(&pair, page, mr->rkey), IBV_WC_REM_ACCESS_ERR);
    CHECK_EQ(faults, 2);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    destroy_pair(&pair);
}

/* A handler that does not come back, when a thread that polls is in it, leaves nothing locked. */
static void check_left(void)
{
    struct pair pair = make_pair((struct pair_options){0});
    char *page = new_page();
    struct ibv_mr *mr = ibv_reg_mr(pair.pd, page, PAGE, ACCESS);
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&pair.left, &sge, 7, IBV_WR_RDMA_WRITE, 64), *bad;
    struct ibv_wc wc;
    volatile int left = 0, completed;
    double start = seconds();

    CHECK(mr);
    install();
    jumper = pthread_self();
    wr.wr.rdma.remote_addr = (uintptr_t)page;
    wr.wr.rdma.rkey = mr->rkey;
    while (left < 20) {
        /* The library's thread may be first. */
        CHECK(seconds() - start < 60);
        faults = completed = 0;
        CHECK_EQ(mprotect(page, PAGE, PROT_READ), 0);
        CHECK_EQ(ibv_post_send(pair.left.qp, &wr, &bad), 0);
        is_to_jump = 1;
        if (sigsetjmp(away, 1))
            left++;
        while (!faults || !completed) {
            completed += ibv_poll_cq(pair.left.cq, 1, &wc);
            CHECK(!completed || wc.status == IBV_WC_SUCCESS);
        }
        is_to_jump = 0;
        CHECK_EQ(faults, 1);
        CHECK_EQ(completed, 1);
    }
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_EQ(munmap(page, PAGE), 0);
    destroy_pair(&pair);
}

int main(void)
{
    check_blocked();
    check_blocked_in_handler();
    check_tracked(true);
    check_tracked(false);
    check_left();
    return 0;
}
