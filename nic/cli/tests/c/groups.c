// Asks for address handles of multicast groups by the first GID, and by that of RoCE v1 of the same
// address; says what became of each.
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

static void ask(struct ibv_pd *pd, int index, int group)
{
    struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};
    attr.grh.sgid_index = index;
    // ::ffff:239.1.2.x
    memcpy(attr.grh.dgid.raw + 10, "\xff\xff\xef\x01\x02", 5);
    attr.grh.dgid.raw[15] = group;
    struct ibv_ah *ah = ibv_create_ah(pd, &attr);
    printf("GID %d: %s\n", index, ah ? "made" : strerrorname_np(errno));
    if (ah)
        ibv_destroy_ah(ah);
}

int main(int argc, char **argv)
{
    struct ibv_device **devices = ibv_get_device_list(NULL);
    for (int at = 0; devices && devices[at]; at++) {
        if (argc < 2 || strcmp(ibv_get_device_name(devices[at]), argv[1]) != 0)
            continue;
        struct ibv_context *context = ibv_open_device(devices[at]);
        struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
        if (!pd)
            return 1;
        ask(pd, 0, 1);
        ask(pd, 32, 1);
        ask(pd, 32, 2);
        return 0;
    }
    fprintf(stderr, "no such device\n");
    return 1;
}
