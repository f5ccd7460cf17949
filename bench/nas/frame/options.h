/* The command line. */
#pragma once

#include "common/failure.h"
#include "nas/frame/program.h"

#include <stdbool.h>
#include <stdio.h>

struct options {
    enum { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_VERSION, OPTIONS_LIST } action;
    const struct program *program;
    enum size_class class;
    int iterations;        /* 0: those of the class */
    uint64_t memory_bytes; /* of a node; 0: what is available there */
    bool json;
    bool corrupt;
    bool modelled;
};

/* Reads the command line. Returns 0, or -1 and says what is wrong. */
int options_parse(struct options *options, int argc, char **argv, struct failure *failure);

/* One line for each option. */
void options_describe(FILE *out);
