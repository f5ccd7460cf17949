#include "nas/cg/cg.h"
#include "nas/ep/ep.h"
#include "nas/frame/program.h"
#include "nas/ft/ft.h"
#include "nas/is/is.h"
#include "nas/mg/mg.h"

#include <stddef.h>

const struct program *const programs[] = {
    &program_cg, &program_ep, &program_ft, &program_is, &program_mg, NULL,
};
