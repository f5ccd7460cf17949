#include "nas/bt/bt.h"
#include "nas/ep/ep.h"
#include "nas/frame/program.h"

#include <stddef.h>

const struct program *const programs[] = {
    &program_ep,
    &program_bt,
    NULL,
};
