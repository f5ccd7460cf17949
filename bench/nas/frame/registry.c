#include "nas/ep/ep.h"
#include "nas/frame/program.h"
#include "nas/is/is.h"

#include <stddef.h>

const struct program *const programs[] = {
    &program_ep,
    &program_is,
    NULL,
};
