/* What a program of the suite is: a name, how many ranks it takes, a plan, and the work. */
#pragma once

#include "common/failure.h"

#include <stdbool.h>
#include <stdint.h>

/* The problem classes. */
enum size_class { CLASS_S, CLASS_W, CLASS_A, CLASS_B, CLASS_C, CLASS_D, CLASS_COUNT };

/* Their letters, in that order. */
#define CLASS_LETTERS "SWABCD"

/* How many ranks a program can use. */
enum ranks_rule { RANKS_ANY, RANKS_POWER_OF_TWO, RANKS_SQUARE };

/* What is asked for: the same on every rank. */
struct job {
    enum size_class class;
    int ranks;
};

/* What that takes. */
struct plan {
    char size[32];       /* "256x256x128" */
    int iterations;      /* of the timed loop */
    uint64_t rank_bytes; /* memory of the rank that needs most */
};

struct run;

struct program {
    const char *name; /* as in commands: "ft" */
    const char *title;
    const char *operation; /* what Mop/s counts: "floating point" */
    enum ranks_rule ranks;
    bool needs_data; /* what it sends, or how much it works, depends on the data */
    /* Fills the plan. Returns -1 and says why if so many ranks cannot share this class; that they
     * are a power of two or a square is known already. Called on every rank, without MPI. */
    int (*plan)(const struct job *job, struct plan *plan, struct failure *failure);
    /* Sets up, works between run_start and run_stop, and gives its results to run_check. */
    void (*run)(struct run *run);
};

/* All of them; ends with NULL. */
extern const struct program *const programs[];

/* The one of that name, upper or lower case, or NULL. */
const struct program *program_find(const char *name);

/* The class of that letter, upper or lower case, or CLASS_COUNT. */
enum size_class class_find(char letter);

/* Returns 0 if the program can run this job, with its plan; else -1, and says what is wrong. */
int program_plan(const struct program *program, const struct job *job, struct plan *plan,
                 struct failure *failure);
