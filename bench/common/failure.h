/* Why something could not be done, as text for a person. */
#pragma once

struct failure {
    char text[256];
};

/* Sets the text (printf style) and returns -1, so that callers can `return failure_set(...)`. */
int failure_set(struct failure *failure, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same, followed by what errno means. */
int failure_errno(struct failure *failure, const char *what);
