/* Every call that blocks, and what may happen to a thread in it: signals of both kinds, or the
 * process is stopped, or the thread is cancelled. Or a signal handler jumps out, or another thread
 * closes the descriptor or destroys what is waited for. */
#include "blocking_calls.h"

/* ---- a thread in a call --------------------------------------------------------------------- */

struct waiter {
    const struct call *call;
    pthread_t thread;
    pid_t tid;
    int times; /* calls it is to make */
    int begun; /* and has */
    int result, error;
    int cleaned_up; /* its cleanup handler ran */
};

static void note_cleanup(void *argument)
{
    __atomic_store_n(&((struct waiter *)argument)->cleaned_up, 1, __ATOMIC_SEQ_CST);
}

static void *run_waiter(void *argument)
{
    struct waiter *waiter = argument;

    __atomic_store_n(&waiter->tid, (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    pthread_cleanup_push(note_cleanup, waiter);
    for (int i = 0; i < waiter->times; i++) {
        __atomic_store_n(&waiter->begun, i + 1, __ATOMIC_SEQ_CST);
        errno = 0;
        waiter->result = waiter->call->wait();
        waiter->error = waiter->result ? errno : 0;
        if (waiter->result)
            break;
    }
    pthread_cleanup_pop(0);
    return NULL;
}

/* Whether a thread sleeps in the kernel. */
static bool sleeps(pid_t tid)
{
    char path[64], text[256], *state;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
    CHECK((file = fopen(path, "r")) != NULL);
    CHECK(fgets(text, sizeof(text), file));
    fclose(file);
    CHECK((state = strrchr(text, ')')) != NULL);
    return state[2] == 'S';
}

/* Waits until the thread sleeps in its call, for some time on end. */
static void wait_until_asleep(struct waiter *waiter, int begun)
{
    double start = seconds();

    for (int in_a_row = 0; in_a_row < 20;) {
        usleep(1000);
        pid_t tid = __atomic_load_n(&waiter->tid, __ATOMIC_SEQ_CST);
        in_a_row = tid && __atomic_load_n(&waiter->begun, __ATOMIC_SEQ_CST) == begun && sleeps(tid)
                       ? in_a_row + 1
                       : 0;
        CHECK(seconds() - start < 60);
    }
}

static void begin(struct waiter *waiter, const struct call *call, int times)
{
    *waiter = (struct waiter){.call = call, .times = times};
    CHECK_EQ(pthread_create(&waiter->thread, NULL, run_waiter, waiter), 0);
    wait_until_asleep(waiter, 1);
}

static void *join(struct waiter *waiter)
{
    void *result;

    CHECK_EQ(pthread_join(waiter->thread, &result), 0);
    return result;
}

static void join_well(struct waiter *waiter)
{
    CHECK(join(waiter) == NULL);
    CHECK_EQ(waiter->error, 0);
    CHECK_EQ(waiter->result, 0);
}

/* ---- what happens to it --------------------------------------------------------------------- */

static int handled[NSIG];

static void note(int signal)
{
    __atomic_add_fetch(&handled[signal], 1, __ATOMIC_SEQ_CST);
}

static void install(int signal, int flags)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = flags};

    CHECK_EQ(sigaction(signal, &action, NULL), 0);
}

static void forget(int signal_number)
{
    CHECK(signal(signal_number, SIG_DFL) != SIG_ERR);
}

/* Interrupts the thread, and waits for the handler. */
static void interrupt(struct waiter *waiter, int signal)
{
    int before = __atomic_load_n(&handled[signal], __ATOMIC_SEQ_CST);
    double start = seconds();

    CHECK_EQ(pthread_kill(waiter->thread, signal), 0);
    while (__atomic_load_n(&handled[signal], __ATOMIC_SEQ_CST) == before) {
        usleep(1000);
        CHECK(seconds() - start < 60);
    }
}

static void check_restarting(const struct call *call)
{
    struct waiter waiter;

    install(SIGUSR1, SA_RESTART);
    begin(&waiter, call, 2);
    for (int i = 0; i < 3; i++)
        interrupt(&waiter, SIGUSR1);
    wait_until_asleep(&waiter, 1);
    call->raise();
    wait_until_asleep(&waiter, 2);
    interrupt(&waiter, SIGUSR1);
    wait_until_asleep(&waiter, 2);
    call->raise();
    join_well(&waiter);
    forget(SIGUSR1);
}

static void check_interrupting(const struct call *call)
{
    struct waiter waiter;

    install(SIGUSR2, 0);
    begin(&waiter, call, 1);
    interrupt(&waiter, SIGUSR2);
    CHECK(join(&waiter) == NULL);
    CHECK_EQ(waiter.result, -1);
    CHECK_EQ(waiter.error, EINTR);
    forget(SIGUSR2);
}

/* A program with handlers of both kinds; one is installed while the thread waits. */
static void check_both(const struct call *call)
{
    struct waiter waiter;

    CHECK(signal(SIGUSR1, note) != SIG_ERR); /* restarts, unless told otherwise */
    install(SIGUSR2, 0);
    begin(&waiter, call, 2);
    for (int i = 0; i < 3; i++)
        interrupt(&waiter, SIGUSR1);
    wait_until_asleep(&waiter, 1);
    call->raise();
    wait_until_asleep(&waiter, 2);
    interrupt(&waiter, SIGUSR1);
    wait_until_asleep(&waiter, 2);
    interrupt(&waiter, SIGUSR2);
    CHECK(join(&waiter) == NULL);
    CHECK_EQ(waiter.result, -1);
    CHECK_EQ(waiter.error, EINTR);
    forget(SIGUSR2);
    begin(&waiter, call, 1);
    install(SIGUSR1, 0); /* while it waits */
    interrupt(&waiter, SIGUSR1);
    CHECK(join(&waiter) == NULL);
    CHECK_EQ(waiter.error, EINTR);
    forget(SIGUSR1);
}

static volatile pid_t child_of_handler;

static void fork_and_note(int signal)
{
    if ((child_of_handler = fork()) == 0)
        _exit(0);
    note(signal);
}

/* The handler forks; the thread waits on. */
static void check_forked(const struct call *call)
{
    struct sigaction action = {.sa_handler = fork_and_note, .sa_flags = SA_RESTART};
    struct waiter waiter;
    int status = -1;

    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    begin(&waiter, call, 1);
    for (int i = 0; i < 3; i++) {
        interrupt(&waiter, SIGUSR1);
        CHECK_EQ(waitpid(child_of_handler, &status, 0), child_of_handler);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    wait_until_asleep(&waiter, 1);
    call->raise();
    join_well(&waiter);
    forget(SIGUSR1);
}

/* Another process stops this one for a while. */
static void check_stopped(const struct call *call, bool with_handlers)
{
    struct waiter waiter;
    char command[100];
    pid_t child;
    int status;

    if (with_handlers) {
        install(SIGUSR1, SA_RESTART);
        install(SIGUSR2, 0);
    }
    begin(&waiter, call, 1);
    snprintf(command, sizeof(command), "kill -STOP %d; sleep 0.05; kill -CONT %d", getpid(),
             getpid());
    if ((child = fork()) == 0) {
        unsetenv("LD_PRELOAD");
        execl("/bin/sh", "sh", "-c", command, NULL);
        _exit(9);
    }
    CHECK(child > 0);
    while (waitpid(child, &status, 0) < 0)
        CHECK_EQ(errno, EINTR);
    CHECK_EQ(status, 0);
    wait_until_asleep(&waiter, 1);
    call->raise();
    join_well(&waiter);
    if (with_handlers) {
        forget(SIGUSR1);
        forget(SIGUSR2);
    }
}

static void check_cancelled(const struct call *call)
{
    struct waiter waiter, others[2];

    begin(&waiter, call, 1);
    CHECK_EQ(pthread_cancel(waiter.thread), 0);
    CHECK(join(&waiter) == PTHREAD_CANCELED);
    CHECK(waiter.cleaned_up);
    /* One of several; the others wait on, and nothing stays locked. */
    begin(&waiter, call, 1);
    for (int i = 0; i < 2; i++)
        begin(&others[i], call, 1);
    CHECK_EQ(pthread_cancel(waiter.thread), 0);
    CHECK(join(&waiter) == PTHREAD_CANCELED);
    for (int i = 0; i < 2; i++)
        wait_until_asleep(&others[i], 1);
    for (int i = 0; i < 2; i++)
        call->raise();
    for (int i = 0; i < 2; i++)
        join_well(&others[i]);
}

static void *cancel_oneself(void *argument)
{
    const struct call *call = argument;

    CHECK_EQ(pthread_cancel(pthread_self()), 0);
    call->wait();
    return NULL;
}

/* A thread that is to be cancelled takes no event with it. */
static void check_cancelled_before(const struct call *call)
{
    pthread_t thread;
    void *result;

    call->raise();
    CHECK_EQ(pthread_create(&thread, NULL, cancel_oneself, (void *)call), 0);
    CHECK_EQ(pthread_join(thread, &result), 0);
    CHECK(result == PTHREAD_CANCELED);
    CHECK_EQ(call->wait(), 0);
}

static void *uncancellable(void *argument)
{
    struct waiter *waiter = argument;

    CHECK_EQ(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL), 0);
    return run_waiter(waiter);
}

/* One that does not want to be cancelled waits on. */
static void check_uncancellable(const struct call *call)
{
    struct waiter waiter = {.call = call, .times = 1};

    CHECK_EQ(pthread_create(&waiter.thread, NULL, uncancellable, &waiter), 0);
    wait_until_asleep(&waiter, 1);
    CHECK_EQ(pthread_cancel(waiter.thread), 0);
    wait_until_asleep(&waiter, 1);
    call->raise();
    join_well(&waiter);
}

static __thread sigjmp_buf out;

static void jump(int signal)
{
    siglongjmp(out, signal);
}

static void *jump_out(void *argument)
{
    struct waiter *waiter = argument;

    __atomic_store_n(&waiter->tid, (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    if (!sigsetjmp(out, 1)) {
        __atomic_store_n(&waiter->begun, 1, __ATOMIC_SEQ_CST);
        waiter->call->wait();
        CHECK(false);
    }
    __atomic_store_n(&waiter->begun, 2, __ATOMIC_SEQ_CST);
    waiter->result = waiter->call->wait();
    waiter->error = waiter->result ? errno : 0;
    return NULL;
}

/* A handler that does not return, as for a time limit; the thread makes the call again. */
static void check_jump(const struct call *call)
{
    struct waiter waiter = {.call = call};
    struct sigaction action = {.sa_handler = jump};

    CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
    CHECK_EQ(pthread_create(&waiter.thread, NULL, jump_out, &waiter), 0);
    wait_until_asleep(&waiter, 1);
    CHECK_EQ(pthread_kill(waiter.thread, SIGUSR1), 0);
    wait_until_asleep(&waiter, 2);
    call->raise();
    join_well(&waiter);
    forget(SIGUSR1);
}

/* ---- what is waited for goes ------------------------------------------------------------------
 */

static void open_all(void)
{
    context = open_loopback();
    CHECK((pd = ibv_alloc_pd(context)) != NULL);
    CHECK((channel = ibv_create_comp_channel(context)) != NULL);
    CHECK((cq = ibv_create_cq(context, 8, &cq, channel, 0)) != NULL);
    qp = make_flushed(cq);
    CHECK((cm_channel = rdma_create_event_channel()) != NULL);
    id_count = 0;
}

static void close_cm(void)
{
    while (id_count)
        CHECK_EQ(rdma_destroy_id(ids[--id_count]), 0);
    rdma_destroy_event_channel(cm_channel);
}

/* The descriptor is closed, which a program should not do: the call goes on, as it does with the
 * kernel's. */
static void check_closed(const struct call *call)
{
    struct waiter waiter;
    int other;

    if (!call->close)
        return;
    open_all();
    begin(&waiter, call, 1);
    CHECK_EQ(call->close(), 0);
    CHECK((other = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0);
    wait_until_asleep(&waiter, 1);
    call->raise();
    join_well(&waiter);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_destroy_cq(cq), 0);
    CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
    ibv_close_device(context);
    CHECK(fcntl(other, F_GETFD) >= 0); /* that number is another file's now */
    close(other);
    close_cm();
}

/* A thread that waits for what is destroyed is told so, or waits for ever; others go on. */
static void check_destroyed(void)
{
    struct waiter waiter, other;

    open_all();
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_destroy_cq(cq), 0);
    begin(&waiter, &CALLS[0], 1);
    begin(&other, &CALLS[1], 1);
    CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
    CHECK(join(&waiter) == NULL);
    CHECK_EQ(waiter.result, -1);
    CHECK_EQ(waiter.error, EBADF);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
    CHECK_EQ(ibv_close_device(context), 0);
    wait_until_asleep(&other, 1);
    CHECK_EQ(pthread_cancel(other.thread), 0);
    CHECK(join(&other) == PTHREAD_CANCELED);
    close_cm();
}

int main(void)
{
    open_all();
    for (unsigned i = 0; i < sizeof(CALLS) / sizeof(*CALLS); i++) {
        const struct call *call = &CALLS[i];

        fprintf(stderr, "%s\n", call->name);
        check_restarting(call);
        check_interrupting(call);
        check_both(call);
        check_forked(call);
        check_stopped(call, false);
        check_stopped(call, true);
        check_cancelled(call);
        check_cancelled_before(call);
        check_uncancellable(call);
        check_jump(call);
    }
    close_cm();
    for (unsigned i = 0; i < sizeof(CALLS) / sizeof(*CALLS); i++)
        check_closed(&CALLS[i]);
    check_destroyed();
    return 0;
}
