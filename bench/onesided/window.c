#include "onesided/window.h"

#include <stdlib.h>
#include <string.h>

#define WINDOW_MIN_BYTES 8 /* the atomics' operand */
#define TAG_ADDRESS 3

static size_t window_bytes(const struct run *run)
{
    size_t bytes = run->benchmark->content->recv_blocks(run) * run->size_bytes;

    return bytes < WINDOW_MIN_BYTES ? WINDOW_MIN_BYTES : bytes;
}

static bool keeps_epoch(const struct run *run)
{
    return run->sync == SYNC_FLUSH || run->sync == SYNC_FLUSH_LOCAL;
}

static void create(struct run *run, struct window *window)
{
    MPI_Aint bytes = (MPI_Aint)window_bytes(run);

    if (run->options->window_type == WINDOW_ALLOCATE) {
        MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, run->comm, &window->memory, &window->win);
        return;
    }
    window->memory = malloc((size_t)bytes);
    if (window->memory == NULL)
        MPI_Abort(run->comm, EXIT_FAILURE);
    if (run->options->window_type == WINDOW_CREATE) {
        MPI_Win_create(window->memory, bytes, 1, MPI_INFO_NULL, run->comm, &window->win);
        return;
    }
    MPI_Aint here;

    MPI_Win_create_dynamic(MPI_INFO_NULL, run->comm, &window->win);
    MPI_Win_attach(window->win, window->memory, bytes);
    MPI_Get_address(window->memory, &here);
    MPI_Sendrecv(&here, 1, MPI_AINT, run->peer, TAG_ADDRESS, &window->at_peer, 1, MPI_AINT,
                 run->peer, TAG_ADDRESS, run->comm, MPI_STATUS_IGNORE);
}

static void open_window(struct run *run, bool both_act)
{
    struct window *window = calloc(1, sizeof *window);
    MPI_Group all;

    if (window == NULL)
        MPI_Abort(run->comm, EXIT_FAILURE);
    window->both_act = both_act;
    create(run, window);
    memset(window->memory, 0, window_bytes(run));
    MPI_Win_get_group(window->win, &all);
    MPI_Group_incl(all, 1, &run->peer, &window->peer);
    MPI_Group_free(&all);
    /* The second rank's epoch is with itself: it looks at what arrives. */
    MPI_Barrier(run->comm);
    if (keeps_epoch(run))
        MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window->win);
    run->state = window;
}

void window_open_one_way(struct run *run)
{
    open_window(run, false);
}

void window_open_in_turn(struct run *run)
{
    open_window(run, run->sync == SYNC_PSCW);
}

void window_open_both_ways(struct run *run)
{
    open_window(run, true);
}

void window_close(struct run *run)
{
    struct window *window = run->state;

    if (keeps_epoch(run))
        MPI_Win_unlock(1, window->win);
    MPI_Barrier(run->comm);
    if (run->options->window_type == WINDOW_DYNAMIC)
        MPI_Win_detach(window->win, window->memory);
    MPI_Win_free(&window->win);
    MPI_Group_free(&window->peer);
    if (run->options->window_type != WINDOW_ALLOCATE)
        free(window->memory);
    free(window);
}

void window_begin_local(struct run *run)
{
    struct window *window = run->state;

    if (keeps_epoch(run))
        MPI_Win_flush(1, window->win);
    MPI_Barrier(run->comm);
    if (keeps_epoch(run))
        MPI_Win_sync(window->win);
    else if (run->sync == SYNC_LOCK || run->sync == SYNC_LOCK_ALL)
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, run->rank, 0, window->win);
}

void window_end_local(struct run *run)
{
    struct window *window = run->state;

    if (keeps_epoch(run))
        MPI_Win_sync(window->win);
    else if (run->sync == SYNC_LOCK || run->sync == SYNC_LOCK_ALL)
        MPI_Win_unlock(run->rank, window->win);
}

static void act(struct run *run, void (*issue)(struct run *run))
{
    struct window *window = run->state;

    MPI_Win_start(window->peer, 0, window->win);
    issue(run);
    MPI_Win_complete(window->win);
}

static void expose(struct run *run)
{
    struct window *window = run->state;

    MPI_Win_post(window->peer, 0, window->win);
    MPI_Win_wait(window->win);
}

static void epoch_pscw(struct run *run, void (*issue)(struct run *run))
{
    const struct window *window = run->state;

    if (run->sends) {
        act(run, issue);
        if (window->both_act)
            expose(run);
    } else {
        expose(run);
        if (window->both_act)
            act(run, issue);
    }
}

static void epoch_fence(struct run *run, void (*issue)(struct run *run), bool issues)
{
    struct window *window = run->state;

    MPI_Win_fence(MPI_MODE_NOPRECEDE, window->win);
    if (issues)
        issue(run);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, window->win);
}

/* Only the first rank acts. */
static void epoch_passive(struct run *run, void (*issue)(struct run *run))
{
    struct window *window = run->state;

    if (!run->sends)
        return;
    if (run->sync == SYNC_LOCK)
        MPI_Win_lock(MPI_LOCK_SHARED, run->peer, 0, window->win);
    else if (run->sync == SYNC_LOCK_ALL)
        MPI_Win_lock_all(0, window->win);
    issue(run);
    if (run->sync == SYNC_LOCK)
        MPI_Win_unlock(run->peer, window->win);
    else if (run->sync == SYNC_LOCK_ALL)
        MPI_Win_unlock_all(window->win);
    else if (run->sync == SYNC_FLUSH)
        MPI_Win_flush(run->peer, window->win);
    else
        MPI_Win_flush_local(run->peer, window->win);
}

void window_epoch(struct run *run, void (*issue)(struct run *run))
{
    if (run->sync == SYNC_PSCW)
        epoch_pscw(run, issue);
    else if (run->sync == SYNC_FENCE)
        epoch_fence(run, issue, run->sends);
    else
        epoch_passive(run, issue);
}

void window_epoch_both_ways(struct run *run, void (*issue)(struct run *run))
{
    struct window *window = run->state;

    if (run->sync == SYNC_FENCE) {
        epoch_fence(run, issue, true);
        return;
    }
    MPI_Win_post(window->peer, 0, window->win);
    act(run, issue);
    MPI_Win_wait(window->win);
}
