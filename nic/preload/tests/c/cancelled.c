/* Threads that are to be cancelled use verbs, and functions of libc that pass through the library:
 * nothing stays locked, and a thread in a function of libc ends as it does without the library. */
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "urxe_test.h"

enum { ROUNDS = 200, LENGTH = 40000 };

static void exchange(struct pair *pair)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&pair->left, &sge, 1, IBV_WR_SEND, LENGTH), *bad;

    post_receive(&pair->right, 2, 0, LENGTH);
    CHECK_EQ(ibv_post_send(pair->left.qp, &wr, &bad), 0);
    CHECK_EQ(next_completion(pair->right.cq, pair->left.cq).status, IBV_WC_SUCCESS);
    CHECK_EQ(next_completion(pair->left.cq, pair->right.cq).status, IBV_WC_SUCCESS);
}

/* Makes, uses and destroys one of each while its cancellation is pending; no verb that does not
 * block is where it ends. */
static void *use_verbs(void *argument)
{
    struct pair *pair = argument;

    CHECK_EQ(pthread_cancel(pthread_self()), 0);
    for (int i = 0; i < ROUNDS; i++)
        exchange(pair);
    for (int i = 0; i < 3; i++) {
        struct pair own = make_pair((struct pair_options){.with_channel = true});
        struct ibv_port_attr port;
        union ibv_gid gid;

        exchange(&own);
        CHECK_EQ(ibv_req_notify_cq(own.left.cq, 0), 0);
        CHECK_EQ(ibv_query_port(own.context, 1, &port), 0);
        CHECK_EQ(ibv_query_gid(own.context, 1, 0, &gid), 0);
        destroy_pair(&own);
    }
    *(volatile bool *)pair->left.qp->qp_context = true;
    pthread_testcancel();
    return NULL;
}

static void check_verbs(void)
{
    struct pair pair = make_pair((struct pair_options){0});
    bool is_done = false;
    pthread_t thread;
    void *result;

    pair.left.qp->qp_context = &is_done;
    CHECK_EQ(pthread_create(&thread, NULL, use_verbs, &pair), 0);
    CHECK_EQ(pthread_join(thread, &result), 0);
    CHECK(result == PTHREAD_CANCELED && is_done);
    exchange(&pair);
    destroy_pair(&pair);
}

/* ---- libc ---------------------------------------------------------------------------------------
 */

static int ends[2], cleaned_up;

static void note_cleanup(void *argument)
{
    (void)argument;
    __atomic_store_n(&cleaned_up, 1, __ATOMIC_SEQ_CST);
}

static void *use_pipe(void *argument)
{
    char bytes[4096] = {0};
    ssize_t done = 0;

    pthread_cleanup_push(note_cleanup, NULL);
    while (done >= 0)
        done = argument ? write(ends[1], bytes, sizeof(bytes)) : read(ends[0], bytes, 1);
    pthread_cleanup_pop(0);
    return NULL;
}

static void check_pipe(bool writes)
{
    pthread_t thread;
    void *result;

    cleaned_up = 0;
    CHECK_EQ(pipe(ends), 0);
    CHECK_EQ(pthread_create(&thread, NULL, use_pipe, writes ? ends : NULL), 0);
    usleep(20000);
    CHECK_EQ(pthread_cancel(thread), 0);
    CHECK_EQ(pthread_join(thread, &result), 0);
    CHECK(result == PTHREAD_CANCELED && cleaned_up);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    check_pipe(false);
    check_pipe(true);
    check_verbs();
    return 0;
}
