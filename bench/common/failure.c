#include "common/failure.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int failure_set(struct failure *failure, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(failure->text, sizeof failure->text, format, arguments);
    va_end(arguments);
    return -1;
}

int failure_errno(struct failure *failure, const char *what)
{
    return failure_set(failure, "%s: %s", what, strerror(errno));
}
