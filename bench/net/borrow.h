/* Sending without a copy: the kernel borrows the pages of a message, through a pipe. */
#pragma once

#include "common/failure.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct borrow {
    int pipe[2]; /* -1: not open */
    size_t in_pipe_bytes;
};

/* Opens the pipe, as long as the system lets it be. Returns 0, or -1. */
int borrow_open(struct borrow *borrow, struct failure *failure);
void borrow_close(struct borrow *borrow);

/* Sends up to `length` bytes of `message` by reference: it must not change until the peer has it.
 * Returns bytes sent, 0 if the socket would block, or -1. */
ssize_t borrow_send(struct borrow *borrow, int data, const uint8_t *message, size_t length,
                    struct failure *failure);
