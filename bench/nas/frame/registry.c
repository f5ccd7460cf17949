#include "nas/bt/bt.h"
#include "nas/cg/cg.h"
#include "nas/ep/ep.h"
#include "nas/frame/program.h"
#include "nas/ft/ft.h"
#include "nas/is/is.h"
#include "nas/lu/lu.h"
#include "nas/mg/mg.h"
#include "nas/sp/sp.h"

#include <stddef.h>

const struct program *const programs[] = {
    &program_bt, &program_cg, &program_ep, &program_ft, &program_is,
    &program_lu, &program_mg, &program_sp, NULL,
};
