/* Two programs tell each other where their memory is, write into it or read from it, and say that
 * they have done so. Each end is a state machine that its completions advance, as first programs
 * with RDMA often are; it counts on a SEND being complete before what the peer sent
 * because of it is received.
 *
 * exchange HOST PORT write|read serves; with a fourth argument it connects. */
#include <pthread.h>
#include <rdma/rdma_cma.h>

#include "urxe_test.h"

enum { ROUNDS = 40, TEXT_BYTES = 256, SENT_IN_ALL = 3, RECEIVED_IN_ALL = 2 };

enum kind { REGION = 1, DONE };

struct message {
    enum kind kind;
    uint32_t rkey;
    uint64_t address;
};

/* All memory of an end; peers write `theirs`, or read `ours` into it. */
struct memory {
    struct message out, in;
    char ours[TEXT_BYTES], theirs[TEXT_BYTES];
};

struct end {
    struct rdma_cm_id *id;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    struct memory *memory;
    struct message peer;
    bool is_client, writes;
    /* The state: how many requests are complete, and how many messages have come. */
    int sent, received;
};

static struct ibv_sge element(struct end *end, void *start, uint32_t length)
{
    return (struct ibv_sge){(uintptr_t)start, length, end->mr->lkey};
}

static void receive(struct end *end)
{
    struct ibv_sge sge = element(end, &end->memory->in, sizeof end->memory->in);
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

    CHECK_EQ(ibv_post_recv(end->id->qp, &wr, &bad), 0);
}

static void send_message(struct end *end, enum kind kind)
{
    struct ibv_sge sge = element(end, &end->memory->out, sizeof end->memory->out);
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED},
                       *bad;

    end->memory->out = (struct message){
        .kind = kind,
        .rkey = end->mr->rkey,
        .address = (uintptr_t)(end->writes ? end->memory->theirs : end->memory->ours),
    };
    CHECK_EQ(ibv_post_send(end->id->qp, &wr, &bad), 0);
}

static void reach_over(struct end *end)
{
    struct ibv_sge sge =
        element(end, end->writes ? end->memory->ours : end->memory->theirs, TEXT_BYTES);
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = end->writes ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {end->peer.address, end->peer.rkey}},
                       *bad;

    CHECK_EQ(ibv_post_send(end->id->qp, &wr, &bad), 0);
}

static void on_message(struct end *end)
{
    end->received++;
    CHECK_EQ(end->memory->in.kind, end->received == 1 ? REGION : DONE);
    if (end->memory->in.kind == DONE) {
        CHECK(end->sent >= 1); /* our REGION is what it is the answer to */
        return;
    }
    end->peer = end->memory->in;
    receive(end);
    if (end->is_client)
        CHECK_EQ(end->sent, 1); /* the same */
    else
        send_message(end, REGION);
}

/* Advances the state by a completion; whether all is done. */
static bool on_completion(struct end *end, const struct ibv_wc *wc)
{
    bool both_knew = end->sent >= 1 && end->received >= 1;

    CHECK_EQ(wc->status, IBV_WC_SUCCESS);
    if (wc->opcode & IBV_WC_RECV)
        on_message(end);
    else
        end->sent++;
    if (!both_knew && end->sent >= 1 && end->received >= 1) {
        reach_over(end);
        send_message(end, DONE);
    }
    return end->sent == SENT_IN_ALL && end->received == RECEIVED_IN_ALL;
}

static void *complete(void *argument)
{
    struct end *end = argument;
    bool is_done = false;

    while (!is_done) {
        struct ibv_cq *cq;
        struct ibv_wc wc;
        void *context;

        CHECK_EQ(ibv_get_cq_event(end->channel, &cq, &context), 0);
        ibv_ack_cq_events(cq, 1);
        CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
        while (ibv_poll_cq(cq, 1, &wc))
            is_done = on_completion(end, &wc);
    }
    return NULL;
}

static void make(struct end *end, struct rdma_cm_id *id, bool is_client, bool writes)
{
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };

    *end = (struct end){.id = id, .is_client = is_client, .writes = writes};
    CHECK(end->channel = ibv_create_comp_channel(id->verbs));
    CHECK(end->cq = ibv_create_cq(id->verbs, 8, NULL, end->channel, 0));
    CHECK_EQ(ibv_req_notify_cq(end->cq, 0), 0);
    attr.send_cq = attr.recv_cq = end->cq;
    CHECK_EQ(rdma_create_qp(id, NULL, &attr), 0);
    CHECK(end->memory = calloc(1, sizeof *end->memory));
    snprintf(end->memory->ours, TEXT_BYTES, "from the %s", is_client ? "client" : "server");
    CHECK(end->mr = ibv_reg_mr(id->pd, end->memory, sizeof *end->memory,
                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                   IBV_ACCESS_REMOTE_READ));
    receive(end);
}

static void destroy(struct end *end)
{
    rdma_destroy_qp(end->id);
    CHECK_EQ(ibv_dereg_mr(end->mr), 0);
    CHECK_EQ(ibv_destroy_cq(end->cq), 0);
    CHECK_EQ(ibv_destroy_comp_channel(end->channel), 0);
    free(end->memory);
    CHECK_EQ(rdma_destroy_id(end->id), 0);
}

static struct rdma_cm_id *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event;
    struct rdma_cm_id *id;

    CHECK_EQ(rdma_get_cm_event(channel, &event), 0);
    CHECK_EQ(event->event, type);
    id = event->id;
    CHECK_EQ(rdma_ack_cm_event(event), 0);
    return id;
}

static struct rdma_cm_id *connected_to(struct rdma_event_channel *channel,
                                       struct rdma_addrinfo *found)
{
    struct rdma_cm_id *id;

    CHECK_EQ(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    CHECK_EQ(rdma_resolve_addr(id, NULL, found->ai_dst_addr, 2000), 0);
    expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK_EQ(rdma_resolve_route(id, 2000), 0);
    expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    return id;
}

static void exchange(struct rdma_event_channel *channel, struct rdma_cm_id *id, bool is_client,
                     bool writes)
{
    struct rdma_conn_param param = {
        .initiator_depth = 1, .responder_resources = 1, .rnr_retry_count = 7, .retry_count = 7};
    struct end end;
    pthread_t thread;

    make(&end, id, is_client, writes);
    CHECK_EQ(pthread_create(&thread, NULL, complete, &end), 0);
    CHECK_EQ(is_client ? rdma_connect(id, &param) : rdma_accept(id, &param), 0);
    expect(channel, RDMA_CM_EVENT_ESTABLISHED);
    if (is_client)
        send_message(&end, REGION);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(strcmp(end.memory->theirs, is_client ? "from the server" : "from the client"), 0);
    /* The peer may have been the first. */
    rdma_disconnect(id);
    expect(channel, RDMA_CM_EVENT_DISCONNECTED);
    destroy(&end);
}

int main(int argc, char **argv)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    bool is_client = argc == 5, writes;
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP,
                                  .ai_flags = is_client ? 0 : RAI_PASSIVE},
                         *found;
    struct rdma_cm_id *listener = NULL;

    CHECK(argc == 4 || argc == 5);
    CHECK(channel);
    writes = !strcmp(argv[3], "write");
    CHECK_EQ(rdma_getaddrinfo(argv[1], argv[2], &hints, &found), 0);
    if (!is_client) {
        CHECK_EQ(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP), 0);
        CHECK_EQ(rdma_bind_addr(listener, found->ai_src_addr), 0);
        CHECK_EQ(rdma_listen(listener, 8), 0);
    }
    for (int round = 0; round < ROUNDS; round++)
        exchange(channel,
                 is_client ? connected_to(channel, found)
                           : expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST),
                 is_client, writes);
    rdma_freeaddrinfo(found);
    if (listener)
        CHECK_EQ(rdma_destroy_id(listener), 0);
    rdma_destroy_event_channel(channel);
    printf("exchanged %d times\n", ROUNDS);
    return 0;
}
