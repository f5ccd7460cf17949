/* Connects, and returns from main without ending anything: leaver HOST PORT. */
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *found;
    if (argc < 3 || rdma_getaddrinfo(argv[1], argv[2], &hints, &found)) {
        perror("rdma_getaddrinfo");
        return 1;
    }
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    struct rdma_cm_id *id;
    struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
    if (rdma_create_ep(&id, found, NULL, &attr) || rdma_connect(id, &param)) {
        perror("connect");
        return 1;
    }
    puts("connected");
    return 0;
}
