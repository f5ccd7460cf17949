#include "pt2pt/processes.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

struct children {
    int count;
    pid_t pids[];
};

/* Nothing of MPI works in a child. It goes when the rank does, in whatever way that ends. */
static _Noreturn void wait_for_the_end(pid_t rank)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() == rank)
        pause();
    _exit(EXIT_SUCCESS);
}

void processes_open(struct run *run)
{
    int count = (run->sends ? run->options->threads_send : run->options->threads_receive) - 1;
    struct children *children = malloc(sizeof *children + (size_t)count * sizeof(pid_t));
    pid_t rank = getpid();

    if (children == NULL)
        MPI_Abort(run->comm, EXIT_FAILURE);
    children->count = count;
    for (int i = 0; i < count; i++) {
        children->pids[i] = fork();
        if (children->pids[i] == 0)
            wait_for_the_end(rank);
        if (children->pids[i] < 0)
            MPI_Abort(run->comm, EXIT_FAILURE);
    }
    run->state = children;
}

void processes_close(struct run *run)
{
    struct children *children = run->state;

    for (int i = 0; i < children->count; i++) {
        kill(children->pids[i], SIGKILL);
        waitpid(children->pids[i], NULL, 0);
    }
    free(children);
}
