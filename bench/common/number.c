#include "common/number.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *number_read(const char *text, uint64_t *number)
{
    static const char suffixes[] = "KMG";
    char *end;

    if (*text < '0' || *text > '9')
        return NULL;
    errno = 0;
    *number = strtoull(text, &end, 10);
    if (errno != 0)
        return NULL;
    const char *suffix = *end == '\0' ? NULL : strchr(suffixes, *end);

    if (suffix == NULL)
        return end;
    *number <<= 10 * (suffix - suffixes + 1);
    return end + 1;
}
