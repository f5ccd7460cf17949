/* Calls two verbs that no libibverbs has but the one that new_verb.py builds, on objects of urxe.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

struct ibv_mr *ibv_lend_mr(struct ibv_pd *pd, size_t length);
int ibv_measure_qp(struct ibv_qp *qp, uint64_t *measure);

static struct ibv_context *opened(const char *name)
{
    struct ibv_device **list = ibv_get_device_list(NULL);

    for (int i = 0; list && list[i]; i++)
        if (!strcmp(ibv_get_device_name(list[i]), name))
            return ibv_open_device(list[i]);
    return NULL;
}

int main(void)
{
    struct ibv_context *context = opened("urxe_lo");
    struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
    struct ibv_cq *cq = pd ? ibv_create_cq(context, 16, NULL, NULL, 0) : NULL;
    struct ibv_qp_init_attr attributes = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    struct ibv_qp *qp = cq ? ibv_create_qp(pd, &attributes) : NULL;
    struct ibv_mr *mr;
    uint64_t measure = 0;
    int result;

    if (!qp) {
        perror("there is no queue pair to call it on");
        return 1;
    }
    errno = 0;
    mr = ibv_lend_mr(pd, 64);
    printf("ibv_lend_mr %s %s\n", mr ? "pointer" : "NULL", strerrorname_np(errno));
    result = ibv_measure_qp(qp, &measure);
    printf("ibv_measure_qp %s\n", strerrorname_np(result));
    return ibv_destroy_qp(qp) || ibv_destroy_cq(cq) || ibv_dealloc_pd(pd) ||
           ibv_close_device(context);
}
