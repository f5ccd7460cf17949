/* Datagrams, more than a socket's send buffer holds, and then the end. Without arguments the
 * receiver, which says its queue pair's number; `burst ADDRESS NUMBER` is the sender. */
#include <arpa/inet.h>

#include "urxe_test.h"

enum { COUNT = 14000, BYTES = 1024, GRH = 40, SENDS = 256, QKEY = 0x1234 };

static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .cap = {SENDS, COUNT, 1, 1, 0}, .qp_type = IBV_QPT_UD};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);

    CHECK(qp);
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
             0);
    attr.qp_state = IBV_QPS_RTR;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_RTS;
    CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
    return qp;
}

/* How many completions came, at least so many unless none comes for a while. */
static int wait_for(struct ibv_cq *cq, int wanted, double patience_s)
{
    double last = seconds();
    struct ibv_wc wc[64];
    int count = 0;

    while (count < wanted && seconds() - last < patience_s) {
        int got = ibv_poll_cq(cq, 64, wc);

        CHECK(got >= 0);
        for (int i = 0; i < got; i++)
            CHECK_EQ(wc[i].status, IBV_WC_SUCCESS);
        if (got)
            last = seconds();
        count += got;
    }
    return count;
}

static void receive_all(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_sge *sge)
{
    struct ibv_recv_wr wr = {.sg_list = sge, .num_sge = 1}, *bad;
    int count;

    for (int i = 0; i < COUNT; i++)
        CHECK_EQ(ibv_post_recv(qp, &wr, &bad), 0);
    printf("listens %u\n", qp->qp_num);
    fflush(stdout);
    count = wait_for(cq, 1, 20);
    count += wait_for(cq, COUNT - count, 2);
    if (count == COUNT)
        puts("all came");
    else
        printf("%d of %d came\n", count, COUNT);
}

static void send_all(struct ibv_pd *pd, struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_sge *sge,
                     const char *to, const char *number)
{
    struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}};
    struct ibv_send_wr wr = {.sg_list = sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.ud = {.remote_qkey = QKEY}},
                       *bad;
    int done = 0;

    attr.grh.dgid.raw[10] = attr.grh.dgid.raw[11] = 0xff;
    CHECK_EQ(inet_pton(AF_INET, to, attr.grh.dgid.raw + 12), 1);
    CHECK((wr.wr.ud.ah = ibv_create_ah(pd, &attr)) != NULL);
    wr.wr.ud.remote_qpn = (uint32_t)strtoul(number, NULL, 10);
    for (int i = 0; i < COUNT; i++) {
        CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0);
        done += wait_for(cq, i + 1 - SENDS / 2 - done, 10);
    }
    done += wait_for(cq, COUNT - done, 10);
    CHECK_EQ(done, COUNT);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
}

int main(int argc, char **argv)
{
    static char memory[GRH + BYTES];
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = NULL;
    struct ibv_sge sge = {(uintptr_t)memory, sizeof(memory), 0};
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;

    for (int i = 0; list[i]; i++)
        if (!strcmp(ibv_get_device_name(list[i]), "urxe_eth0"))
            CHECK((context = ibv_open_device(list[i])) != NULL);
    CHECK(context && (pd = ibv_alloc_pd(context)) != NULL);
    CHECK((cq = ibv_create_cq(context, COUNT + SENDS, NULL, NULL, 0)) != NULL);
    qp = make_qp(pd, cq);
    sge.lkey = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE)->lkey;
    if (argc > 2) {
        sge.length = BYTES;
        send_all(pd, qp, cq, &sge, argv[1], argv[2]);
    } else {
        receive_all(qp, cq, &sge);
    }
    return 0;
}
