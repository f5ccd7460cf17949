#include "nas/bt/bt.h"
#include "nas/ep/ep.h"
#include "nas/frame/program.h"
#include "nas/lu/lu.h"
#include "nas/sp/sp.h"

#include <stddef.h>

const struct program *const programs[] = {
    &program_ep,
    &program_lu,
    &program_bt,
    &program_sp,
    NULL,
};
