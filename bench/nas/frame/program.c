#include "nas/frame/program.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static int is_power_of_two(int number)
{
    return (number & (number - 1)) == 0;
}

static int is_square(int number)
{
    int root = 1;

    while (root * root < number)
        root++;
    return root * root == number;
}

const struct program *program_find(const char *name)
{
    for (const struct program *const *each = programs; *each != NULL; each++)
        if (strcasecmp((*each)->name, name) == 0)
            return *each;
    return NULL;
}

enum size_class class_find(char letter)
{
    const char *at = strchr(CLASS_LETTERS, toupper((unsigned char)letter));

    return letter == '\0' || at == NULL ? CLASS_COUNT : (enum size_class)(at - CLASS_LETTERS);
}

int program_plan(const struct program *program, const struct job *job, struct plan *plan,
                 struct failure *failure)
{
    *plan = (struct plan){.iterations = 1};
    if (program->ranks == RANKS_POWER_OF_TWO && !is_power_of_two(job->ranks))
        return failure_set(failure, "%s runs on 1, 2, 4, 8, ... ranks, not on %d", program->name,
                           job->ranks);
    if (program->ranks == RANKS_SQUARE && !is_square(job->ranks))
        return failure_set(failure, "%s runs on 1, 4, 9, 16, ... ranks, not on %d", program->name,
                           job->ranks);
    return program->plan(job, plan, failure);
}
