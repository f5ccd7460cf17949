/* What tests of several transports have in common. */
#ifndef URXE_TRANSPORTS_H
#define URXE_TRANSPORTS_H

#include "urxe_test.h"

static void receive_at(struct ibv_qp *qp, uint64_t wr_id, struct ibv_sge *sge)
{
    struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = sge, .num_sge = 1}, *bad;

    CHECK_EQ(ibv_post_recv(qp, &wr, &bad), 0);
}

static struct ibv_wc take(struct ibv_cq *cq, uint64_t wr_id)
{
    struct ibv_wc wc = next_completion(cq, NULL);

    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.wr_id, wr_id);
    return wc;
}

#endif
