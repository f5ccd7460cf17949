/* Processes and threads: fork with and without exec, and threads that post and poll at once. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "urxe_test.h"

/* A message from left to right, whose text arrives. */
static void exchange(struct pair *pair, const char *text)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&pair->left, &sge, 1, IBV_WR_SEND, 64), *bad;

    post_receive(&pair->right, 2, 4096, 64);
    strcpy((char *)pair->left.buffer, text);
    CHECK_EQ(ibv_post_send(pair->left.qp, &wr, &bad), 0);
    CHECK_EQ(next_completion(pair->right.cq, pair->left.cq).status, IBV_WC_SUCCESS);
    CHECK_EQ(next_completion(pair->left.cq, pair->right.cq).status, IBV_WC_SUCCESS);
    CHECK(!strcmp((char *)pair->right.buffer + 4096, text));
}

static void expect_success(pid_t child)
{
    int status = -1;

    CHECK(child > 0);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
}

/* Descriptors that the program was started with. */
static int count_descriptors(void)
{
    int count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Ends what was the parent's, and has a device of its own. */
static void be_child(struct pair *pair)
{
    struct pair own;

    destroy_pair(pair);
    own = make_pair((struct pair_options){0});
    exchange(&own, "in the child");
    destroy_pair(&own);
}

static void use_inherited(struct pair *pair)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&pair->left, &sge, 1, IBV_WR_SEND, 64), *bad = NULL;
    struct ibv_recv_wr receive = {.wr_id = 1}, *bad_receive = NULL;
    struct pair own = {.context = pair->context, .pd = pair->pd, .gid = pair->gid};
    struct pair_options options = {.send_ops = IBV_QP_EX_WITH_SEND};
    struct ibv_qp_init_attr init = {.cap = {.max_send_wr = 1, .max_send_sge = 1},
                                    .send_cq = pair->left.cq,
                                    .recv_cq = pair->left.cq,
                                    .qp_type = IBV_QPT_RC};
    struct ibv_device_attr device;
    struct ibv_qp_attr attr;
    struct ibv_wc wc;

    /* First: what is used of the parent's here is none of the verbs' first arguments. */
    make_sides(&own, &options);
    exchange(&own, "on the parent's context");
    CHECK_EQ(ibv_post_send(pair->left.qp, &wr, &bad), EIO);
    CHECK(bad == &wr);
    CHECK_EQ(ibv_post_recv(pair->left.qp, &receive, &bad_receive), EIO);
    CHECK(bad_receive == &receive);
    CHECK_EQ(ibv_poll_cq(pair->left.cq, 1, &wc), -EIO);
    CHECK_EQ(ibv_req_notify_cq(pair->left.cq, 0), EIO);
    CHECK_EQ(ibv_resize_cq(pair->left.cq, 99), EIO);
    CHECK_EQ(ibv_query_qp(pair->left.qp, &attr, IBV_QP_STATE, &init), EIO);
    init.send_cq = init.recv_cq = pair->left.cq;
    CHECK(!ibv_create_qp(pair->pd, &init));
    CHECK_EQ(errno, EIO);
    CHECK_EQ(ibv_rereg_mr(pair->left.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0), -1);
    CHECK_EQ(errno, EIO);
    CHECK_EQ(ibv_query_device(pair->context, &device), 0);
    /* In any order: objects of the parent's do not count. */
    CHECK_EQ(ibv_dealloc_pd(pair->pd), EBUSY);
    CHECK_EQ(ibv_destroy_cq(pair->left.cq), 0);
    CHECK_EQ(ibv_dereg_mr(pair->left.mr), 0);
    CHECK_EQ(ibv_destroy_qp(pair->left.qp), 0);
    destroy_pair(&own);
}

static void check_fork(void)
{
    int inherited = count_descriptors();
    char command[100];
    struct pair pair = make_pair((struct pair_options){0});
    pid_t child;
    int pipes[2];
    char byte;

    exchange(&pair, "before");
    /* A child that lives on, and writes to its copies, does not concern the parent. */
    CHECK_EQ(pipe(pipes), 0);
    if ((child = fork()) == 0) {
        memset(pair.left.buffer, 'x', 4096);
        memset(pair.right.buffer, 'x', 8192);
        close(pipes[1]);
        CHECK_EQ(read(pipes[0], &byte, 1), 0);
        exit(0);
    }
    memset(pair.right.buffer + 4096, 0, 64);
    for (int i = 0; i < 50; i++)
        exchange(&pair, "meanwhile");
    close(pipes[1]);
    close(pipes[0]);
    expect_success(child);
    exchange(&pair, "after");
    /* Another program inherits no descriptor of ours; ls has one more, of the folder. */
    snprintf(command, sizeof(command), "test $(ls /proc/self/fd | wc -l) = %d", inherited + 1);
    if ((child = fork()) == 0) {
        execl("/bin/sh", "sh", "-c", command, NULL);
        _exit(9);
    }
    expect_success(child);
    exchange(&pair, "after exec");
    /* A child may clean up what it inherited, and open devices of its own. */
    if ((child = fork()) == 0) {
        be_child(&pair);
        exit(0);
    }
    expect_success(child);
    /* It may go on with a context and a protection domain; queues and queue pairs are the parent's.
     */
    if ((child = fork()) == 0) {
        use_inherited(&pair);
        exit(0);
    }
    expect_success(child);
    exchange(&pair, "at last");
    destroy_pair(&pair);
}

/* The sanitizer's malloc, unlike libc's, may be locked in a child by a thread that the child does
 * not have. */
#ifdef __SANITIZE_ADDRESS__
enum { CHILD_MAY_ALLOCATE = 0 };
#else
enum { CHILD_MAY_ALLOCATE = 1 };
#endif

enum { THREADS = 4, MESSAGES = 2000, CHILDREN = 20 };

struct poster {
    pthread_t thread;
    struct pair *pair;
    int index;
};

static void *post(void *argument)
{
    struct poster *poster = argument;
    struct side *left = &poster->pair->left;
    struct ibv_sge sge = {(uintptr_t)left->buffer + 64 * poster->index, 8, left->mr->lkey};
    struct ibv_send_wr wr = {.wr_id = poster->index,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {(uintptr_t)poster->pair->right.buffer + 64 * poster->index,
                                         poster->pair->right.mr->rkey}},
                       *bad;

    for (int i = 0; i < MESSAGES;) {
        int result = ibv_post_send(left->qp, &wr, &bad);

        CHECK(result == 0 || result == ENOMEM);
        i += !result;
    }
    return NULL;
}

static void *poll_all(void *argument)
{
    struct poster *poster = argument;
    static int left = THREADS * MESSAGES;
    double start = seconds();
    struct ibv_wc wc[4];

    while (__atomic_load_n(&left, __ATOMIC_RELAXED) > 0) {
        int got = ibv_poll_cq(poster->pair->left.cq, 4, wc);

        CHECK(got >= 0 && seconds() - start < 60);
        for (int i = 0; i < got; i++)
            CHECK_EQ(wc[i].status, IBV_WC_SUCCESS);
        __atomic_sub_fetch(&left, got, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void check_threads(void)
{
    struct pair pair = make_pair((struct pair_options){0});
    struct poster posters[THREADS + 2];

    /* A request that completed makes room for another, polled or not. */
    CHECK_EQ(ibv_resize_cq(pair.left.cq, THREADS * MESSAGES), 0);
    for (int i = 0; i < THREADS + 2; i++) {
        posters[i] = (struct poster){.pair = &pair, .index = i};
        memset(pair.left.buffer + 64 * i, 'a' + i, 8);
        CHECK_EQ(
            pthread_create(&posters[i].thread, NULL, i < THREADS ? post : poll_all, &posters[i]),
            0);
    }
    /* Children come of whatever the threads are at, and end, or end what those use. Those that fork
     * late find them done.
     */
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();

        if (child == 0 && CHILD_MAY_ALLOCATE && i % 2)
            be_child(&pair);
        if (child == 0)
            exit(0);
        expect_success(child);
    }
    for (int i = 0; i < THREADS + 2; i++)
        CHECK_EQ(pthread_join(posters[i].thread, NULL), 0);
    CHECK(!memcmp(pair.left.buffer, pair.right.buffer, 64 * THREADS));
    destroy_pair(&pair);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        CHECK_EQ(ibv_fork_init(), 0);
    check_fork();
    check_threads();
    if (argc == 1) { /* a program may end without cleaning up */
        struct pair pair = make_pair((struct pair_options){0});

        exchange(&pair, "left behind");
    }
    return 0;
}
