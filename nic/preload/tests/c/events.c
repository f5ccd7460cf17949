/* Completion channels: arming, blocking, polling the descriptor, acknowledging. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "urxe_test.h"

static void send(struct pair *pair, unsigned flags)
{
    struct ibv_sge sge;
    struct ibv_send_wr wr = request(&pair->left, &sge, 7, IBV_WR_SEND, 8), *bad;

    wr.send_flags = flags;
    CHECK_EQ(ibv_post_send(pair->left.qp, &wr, &bad), 0);
}

static int readable(struct ibv_comp_channel *channel, int timeout_ms)
{
    struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
    int result = poll(&fd, 1, timeout_ms);

    CHECK(result >= 0);
    return result;
}

static void take_event(struct side *side)
{
    struct ibv_cq *cq = NULL;
    void *context = NULL;

    CHECK_EQ(ibv_get_cq_event(side->channel, &cq, &context), 0);
    CHECK(cq == side->cq && context == side->cq->cq_context);
}

/* No thread polls a queue here: only the waits below let the device work. */
static void check_blocking(struct pair *pair)
{
    struct ibv_wc wc;

    CHECK_EQ(ibv_req_notify_cq(pair->right.cq, 0), 0);
    post_receive(&pair->right, 1, 0, 64);
    CHECK_EQ(readable(pair->right.channel, 0), 0);
    send(pair, IBV_SEND_SIGNALED);
    take_event(&pair->right);
    CHECK_EQ(ibv_poll_cq(pair->right.cq, 1, &wc), 1);
    CHECK_EQ(wc.opcode, IBV_WC_RECV);
    CHECK_EQ(pair->right.cq->comp_events_completed, 0);
    ibv_ack_cq_events(pair->right.cq, 1);
    CHECK_EQ(pair->right.cq->comp_events_completed, 1);
    next_completion(pair->left.cq, pair->right.cq);
}

/* A program that waits in a poll of its own. */
static void check_descriptor(struct pair *pair)
{
    struct ibv_cq *cq;
    struct ibv_wc wc;
    void *context;
    int flags = fcntl(pair->right.channel->fd, F_GETFL);

    CHECK_EQ(fcntl(pair->right.channel->fd, F_SETFL, flags | O_NONBLOCK), 0);
    errno = 0;
    CHECK_EQ(ibv_get_cq_event(pair->right.channel, &cq, &context), -1);
    CHECK_EQ(errno, EAGAIN);
    post_receive(&pair->right, 1, 0, 64);
    CHECK_EQ(ibv_req_notify_cq(pair->right.cq, 0), 0);
    send(pair, IBV_SEND_SIGNALED);
    CHECK_EQ(readable(pair->right.channel, 60000), 1);
    take_event(&pair->right);
    ibv_ack_cq_events(pair->right.cq, 1);
    CHECK_EQ(readable(pair->right.channel, 0), 0);
    CHECK_EQ(ibv_poll_cq(pair->right.cq, 1, &wc), 1);
    /* Not armed again: no event. */
    post_receive(&pair->right, 1, 0, 64);
    send(pair, IBV_SEND_SIGNALED);
    next_completion(pair->right.cq, pair->left.cq);
    CHECK_EQ(readable(pair->right.channel, 20), 0);
    CHECK_EQ(fcntl(pair->right.channel->fd, F_SETFL, flags), 0);
    for (int i = 0; i < 2; i++)
        next_completion(pair->left.cq, pair->right.cq);
}

static void check_solicited(struct pair *pair)
{
    CHECK_EQ(ibv_req_notify_cq(pair->right.cq, 1), 0);
    post_receive(&pair->right, 1, 0, 64);
    post_receive(&pair->right, 2, 0, 64);
    send(pair, IBV_SEND_SIGNALED);
    next_completion(pair->right.cq, pair->left.cq);
    CHECK_EQ(readable(pair->right.channel, 20), 0);
    send(pair, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
    CHECK_EQ(readable(pair->right.channel, 60000), 1);
    take_event(&pair->right);
    ibv_ack_cq_events(pair->right.cq, 1);
    next_completion(pair->right.cq, pair->left.cq);
    for (int i = 0; i < 2; i++)
        next_completion(pair->left.cq, pair->right.cq);
}

static void *acknowledge_late(void *cq)
{
    usleep(50000);
    ibv_ack_cq_events(cq, 1);
    return NULL;
}

/* Waits for an acknowledgement of another thread by the public members, as programs do with
 * libibverbs. */
static void check_public_counters(struct pair *pair)
{
    struct ibv_cq *cq = pair->right.cq;
    uint32_t before = cq->comp_events_completed;
    pthread_t thread;

    CHECK_EQ(pair->right.channel->refcnt, 1);
    CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
    post_receive(&pair->right, 1, 0, 64);
    send(pair, IBV_SEND_SIGNALED);
    take_event(&pair->right);
    CHECK_EQ(pthread_create(&thread, NULL, acknowledge_late, cq), 0);
    pthread_mutex_lock(&cq->mutex);
    while (cq->comp_events_completed == before)
        CHECK_EQ(pthread_cond_wait(&cq->cond, &cq->mutex), 0);
    CHECK_EQ(cq->comp_events_completed, before + 1);
    pthread_mutex_unlock(&cq->mutex);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    next_completion(cq, pair->left.cq);
    next_completion(pair->left.cq, cq);
}

/* Destroying a queue waits for the acknowledgement, and drops events that were not taken. */
static void check_destruction(struct pair *pair)
{
    struct ibv_comp_channel *channel = pair->right.channel;
    pthread_t thread;
    double start;

    CHECK_EQ(ibv_req_notify_cq(pair->right.cq, 0), 0);
    post_receive(&pair->right, 1, 0, 64);
    send(pair, 0);
    take_event(&pair->right); /* not acknowledged */
    CHECK_EQ(ibv_destroy_qp(pair->left.qp), 0);
    CHECK_EQ(ibv_destroy_qp(pair->right.qp), 0);
    CHECK_EQ(ibv_destroy_comp_channel(channel), EBUSY);
    start = seconds();
    CHECK_EQ(pthread_create(&thread, NULL, acknowledge_late, pair->right.cq), 0);
    CHECK_EQ(channel->refcnt, 1);
    CHECK_EQ(ibv_destroy_cq(pair->right.cq), 0);
    CHECK_EQ(channel->refcnt, 0);
    CHECK(seconds() - start > 0.04);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
    CHECK_EQ(ibv_destroy_cq(pair->left.cq), 0);
    CHECK_EQ(ibv_destroy_comp_channel(pair->left.channel), 0);
    for (struct side *side = &pair->left; side <= &pair->right; side++) {
        CHECK_EQ(ibv_dereg_mr(side->mr), 0);
        free(side->buffer);
    }
    CHECK_EQ(ibv_dealloc_pd(pair->pd), 0);
    CHECK_EQ(ibv_close_device(pair->context), 0);
}

int main(void)
{
    struct pair pair = make_pair((struct pair_options){.with_channel = true});

    check_blocking(&pair);
    check_descriptor(&pair);
    check_solicited(&pair);
    check_public_counters(&pair);
    check_destruction(&pair);
    return 0;
}
