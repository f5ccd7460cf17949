/* fork in a signal handler that has interrupted whatever a thread does with a device: posting,
 * polling, waiting for an event. The child ends at once, or executes another program, as such a
 * child may; where the handler has interrupted no verb, it may return. No process hangs, and the
 * parent's connection is whole.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "urxe_test.h"

enum { FORKS = 60 };

static atomic_int forks;
static volatile pid_t children[FORKS];
static volatile sig_atomic_t is_child, returns;
static pthread_t main_thread;

static void fork_now(int signal)
{
    int at = atomic_load(&forks);
    pid_t child;

    (void)signal;
    if (at >= FORKS)
        return;
    child = fork();
    if (child == 0) {
        is_child = 1;
        if (returns)
            return;
        if (at % 4 == 0)
            execl("/bin/true", "true", NULL);
        _exit(0);
    }
    CHECK(child > 0);
    children[at] = child;
    atomic_store(&forks, at + 1);
}

/* Sends the signal at times that have nothing to do with what the other thread is at. */
static void *interrupt(void *unused)
{
    struct timespec pause = {.tv_nsec = 300000};

    (void)unused;
    while (atomic_load(&forks) < FORKS) {
        int before = atomic_load(&forks);

        pthread_kill(main_thread, SIGUSR1);
        while (atomic_load(&forks) == before)
            nanosleep(&pause, NULL);
        pause.tv_nsec = 300000 + before * 7919 % 100000;
    }
    return NULL;
}

/* A message from left to right. */
static void exchange(struct pair *pair, bool waits)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&pair->left, &sge, 1, IBV_WR_SEND, 64), *bad;
    struct ibv_cq *cq;
    void *context;

    if (waits)
        CHECK_EQ(ibv_req_notify_cq(pair->right.cq, 0), 0);
    post_receive(&pair->right, 2, 0, 64);
    CHECK_EQ(ibv_post_send(pair->left.qp, &wr, &bad), 0);
    if (waits) {
        CHECK_EQ(ibv_get_cq_event(pair->right.channel, &cq, &context), 0);
        ibv_ack_cq_events(cq, 1);
    }
    CHECK_EQ(next_completion(pair->right.cq, pair->left.cq).status, IBV_WC_SUCCESS);
    CHECK_EQ(next_completion(pair->left.cq, pair->right.cq).status, IBV_WC_SUCCESS);
}

static void expect_success_of_all(void)
{
    int status;

    for (int i = 0; i < FORKS; i++) {
        CHECK_EQ(waitpid(children[i], &status, 0), children[i]);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    atomic_store(&forks, 0);
}

static void check_anywhere(bool waits)
{
    struct pair pair = make_pair((struct pair_options){.with_channel = true});
    pthread_t thread;

    /* What grows does so before: no libc can fork in a handler that interrupts its malloc. */
    for (int i = 0; i < 2000; i++)
        exchange(&pair, waits);
    CHECK_EQ(pthread_create(&thread, NULL, interrupt, NULL), 0);
    while (atomic_load(&forks) < FORKS)
        exchange(&pair, waits);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    expect_success_of_all();
    for (int i = 0; i < 100; i++)
        exchange(&pair, waits);
    destroy_pair(&pair);
}

/* Between two verbs. The child that returns ends what its parent's is, and has a device of its own.
 */
static void check_between_verbs(void)
{
    struct pair pair = make_pair((struct pair_options){.with_channel = true});

    returns = 1;
    for (int i = 0; i < FORKS; i++) {
        struct pair own;

        exchange(&pair, i % 2);
        CHECK_EQ(raise(SIGUSR1), 0);
        if (!is_child)
            continue;
        destroy_pair(&pair);
        own = make_pair((struct pair_options){.with_channel = true});
        exchange(&own, i % 2);
        destroy_pair(&own);
        exit(0);
    }
    expect_success_of_all();
    destroy_pair(&pair);
}

int main(void)
{
    struct sigaction action = {.sa_handler = fork_now, .sa_flags = SA_RESTART};

    main_thread = pthread_self();
    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    check_anywhere(false);
    check_anywhere(true);
    check_between_verbs();
    return 0;
}
