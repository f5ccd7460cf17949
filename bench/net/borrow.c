#include "net/borrow.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

/* What a process without privileges may ask for (/proc/sys/fs/pipe-max-size). */
#define PIPE_BYTES (1 << 20)

int borrow_open(struct borrow *borrow, struct failure *failure)
{
    borrow->in_pipe_bytes = 0;
    if (pipe2(borrow->pipe, O_CLOEXEC) < 0) {
        borrow->pipe[0] = borrow->pipe[1] = -1;
        return failure_errno(failure, "pipe");
    }
    /* With a shorter pipe it works as well, in more steps. */
    (void)fcntl(borrow->pipe[1], F_SETPIPE_SZ, PIPE_BYTES);
    return 0;
}

void borrow_close(struct borrow *borrow)
{
    for (int i = 0; i < 2; i++) {
        if (borrow->pipe[i] >= 0)
            close(borrow->pipe[i]);
        borrow->pipe[i] = -1;
    }
}

ssize_t borrow_send(struct borrow *borrow, int data, const uint8_t *message, size_t length,
                    struct failure *failure)
{
    /* What is in the pipe is the beginning of what the caller has not seen sent yet. */
    if (borrow->in_pipe_bytes == 0) {
        struct iovec piece = {.iov_base = (void *)(uintptr_t)message, .iov_len = length};
        ssize_t lent = vmsplice(borrow->pipe[1], &piece, 1, SPLICE_F_NONBLOCK);

        if (lent < 0)
            return failure_errno(failure, "vmsplice");
        borrow->in_pipe_bytes = (size_t)lent;
    }
    ssize_t sent = splice(borrow->pipe[0], NULL, data, NULL, borrow->in_pipe_bytes, 0);
    if (sent < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : failure_errno(failure, "splice");
    borrow->in_pipe_bytes -= (size_t)sent;
    return sent;
}
