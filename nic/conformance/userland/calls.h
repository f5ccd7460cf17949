/* What a program that calls every function needs: a live object of every kind, made anew each time,
 * and a record of what became of each call. generate.py writes the calls.
 *
 * One line on stdout tells of each function: its name, what it returned, and errno. A call that
 * crashes or hangs has a line that says so, and the next one follows.
 */
#ifndef URXE_CALLS_H
#define URXE_CALLS_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The device of the loopback interface, and the address that RDMA-CM finds it by. */
#define DEVICE "urxe_lo"
#define ADDRESS "127.0.0.1"
/* A call that takes so long hangs, on a busy machine, too. */
#define LIMIT_S 20
/* What hangs may hold a lock: then the next calls hang as well. */
#define HUNG_MAX 3
#define DEPTH 16
#define EVERY_ACCESS                                                                               \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |                   \
     IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)

static unsigned char buffer[65536] __attribute__((aligned(4096)));

/* The call that is being made or prepared. */
static const char *current;
static int is_called;
static sigjmp_buf next_call;
static int hung;

static void on_signal(int number)
{
    const char *how = number == SIGALRM ? "hung" : strsignal(number);

    dprintf(STDOUT_FILENO, "%s %s %s\n", current, is_called ? "crashed" : "unmade", how);
    if (number == SIGALRM && ++hung == HUNG_MAX)
        _exit(1);
    siglongjmp(next_call, 1);
}

/* What was to be made for a call cannot be made. */
#define MADE(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            dprintf(STDOUT_FILENO, "%s unmade line %d: %s: %s\n", current, __LINE__, #condition,   \
                    strerror(errno));                                                              \
            siglongjmp(next_call, 1);                                                              \
        }                                                                                          \
    } while (0)

/* From here on it is the function's doing. */
static void call_begins(void)
{
    is_called = 1;
    errno = 0;
}

static void returned_nothing(void)
{
    dprintf(STDOUT_FILENO, "%s void %d\n", current, errno);
}

static void returned_pointer(const volatile void *result)
{
    dprintf(STDOUT_FILENO, "%s %s %d\n", current, result ? "pointer" : "NULL", errno);
}

static void returned_number(long long result)
{
    dprintf(STDOUT_FILENO, "%s %lld %d\n", current, result, errno);
}

static void try_call(const char *name, void (*call)(void))
{
    current = name;
    is_called = 0;
    if (sigsetjmp(next_call, 1) == 0) {
        alarm(LIMIT_S);
        call();
    }
    alarm(0);
}

static void catch_signals(void)
{
    static char stack[65536];
    const stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};

    sigaltstack(&other, NULL);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &action, NULL);
}

/* Memory for a structure, all zero. */
static void *zeroed(size_t size)
{
    void *memory = calloc(1, size);

    MADE(memory);
    return memory;
}

static void never_block(int descriptor)
{
    MADE(fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK) == 0);
}

#endif
