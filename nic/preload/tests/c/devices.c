/* The device list and every query, by both ways to ask. */
#include <fcntl.h>
#include <net/if.h>
#include <unistd.h>

#include "urxe_test.h"

/* Private to rdma-core, used by ibv_devinfo and pyverbs. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, int *type);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

static void check_list(void)
{
    int count = -1, found = 0;
    struct ibv_device **list = ibv_get_device_list(&count), **again;

    CHECK(list && count >= 1 && !list[count]);
    for (int i = 0; i < count; i++) {
        if (strcmp(ibv_get_device_name(list[i]), LOOPBACK))
            continue;
        found++;
        CHECK(ibv_get_device_guid(list[i]) != 0);
        CHECK(ibv_get_device_index(list[i]) > 0);
        CHECK_EQ(list[i]->node_type, IBV_NODE_CA);
        CHECK_EQ(list[i]->transport_type, IBV_TRANSPORT_IB);
        CHECK(!strcmp(list[i]->ibdev_path, "/sys/class/infiniband/" LOOPBACK));
    }
    CHECK_EQ(found, 1);
    again = ibv_get_device_list(NULL);
    for (int i = 0; i <= count; i++)
        CHECK(list[i] == again[i]); /* a device is the same one each time */
    ibv_free_device_list(list);
    ibv_free_device_list(again);
    ibv_free_device_list(NULL);
}

static void check_device(struct ibv_context *context)
{
    struct ibv_device_attr attr;
    struct ibv_device_attr_ex attr_ex;

    memset(&attr, 0xff, sizeof(attr));
    memset(&attr_ex, 0xff, sizeof(attr_ex));
    CHECK_EQ(ibv_query_device(context, &attr), 0);
    CHECK(strlen(attr.fw_ver) > 0 && strlen(attr.fw_ver) < sizeof(attr.fw_ver));
    CHECK(attr.node_guid == ibv_get_device_guid(context->device));
    CHECK_EQ(attr.phys_port_cnt, 1);
    CHECK(attr.max_qp > 100 && attr.max_qp_wr >= 1024 && attr.max_sge >= 4 && attr.max_cqe >= 4096);
    CHECK(attr.max_qp_rd_atom > 0 && attr.max_qp_init_rd_atom > 0);
    CHECK_EQ(ibv_query_device_ex(context, NULL, &attr_ex), 0);
    CHECK(!memcmp(&attr, &attr_ex.orig_attr, offsetof(struct ibv_device_attr, phys_port_cnt)));
    CHECK_EQ(attr_ex.comp_mask, 0);
    CHECK(attr_ex.max_dm_size > 0);
    CHECK_EQ(attr_ex.phys_port_cnt_ex, 1);
    CHECK_EQ(ibv_query_device(context, NULL), EINVAL);
}

static void check_port(struct ibv_context *context)
{
    struct ibv_port_attr port, compat;
    __be16 pkey = 0;

    memset(&port, 0xff, sizeof(port));
    CHECK_EQ(ibv_query_port(context, 1, &port), 0);
    CHECK_EQ(port.state, IBV_PORT_ACTIVE);
    CHECK_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
    CHECK_EQ(port.active_mtu, IBV_MTU_4096); /* loopback has 65536 */
    CHECK_EQ(port.phys_state, 5);
    CHECK_EQ(port.pkey_tbl_len, 1);
    CHECK_EQ(port.port_cap_flags2, 0);
    CHECK(port.gid_tbl_len >= 1 && port.active_speed && port.active_width);
    CHECK(port.max_msg_sz >= 1 << 23);
    memset(&compat, 0xff, sizeof(compat));
    /* The exported function, which programs call that were built against an older verbs.h. */
    CHECK_EQ((ibv_query_port)(context, 1, (void *)&compat), 0);
    CHECK(!memcmp(&port, &compat, offsetof(struct ibv_port_attr, port_cap_flags2)));
    CHECK_EQ(compat.port_cap_flags2, 0xffff); /* not in the older struct */
    CHECK_EQ(ibv_query_port(context, 2, &port), EINVAL);
    CHECK_EQ(ibv_query_pkey(context, 1, 0, &pkey), 0);
    CHECK_EQ(pkey, 0xffff);
    CHECK_EQ(ibv_query_pkey(context, 1, 1, &pkey), -1);
    CHECK_EQ(ibv_get_pkey_index(context, 1, 0xffff), 0);
    CHECK_EQ(ibv_get_pkey_index(context, 1, 0x1234), -1);
}

static void check_gids(struct ibv_context *context)
{
    /* 127.0.0.1 as an IPv4-mapped IPv6 address. */
    const uint8_t loopback[16] = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1};
    struct ibv_gid_entry entry, table[64];
    struct ibv_port_attr port;
    union ibv_gid gid;
    ssize_t used;
    int type;

    CHECK_EQ(ibv_query_port(context, 1, &port), 0);
    CHECK_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
    CHECK(!memcmp(gid.raw, loopback, 16));
    CHECK_EQ(ibv_query_gid_type(context, 1, 0, &type), 0);
    CHECK_EQ(type, 1);
    CHECK_EQ(ibv_query_gid_ex(context, 1, 0, &entry, 0), 0);
    CHECK(!memcmp(entry.gid.raw, loopback, 16));
    CHECK_EQ(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
    CHECK_EQ(entry.gid_index, 0);
    CHECK_EQ(entry.port_num, 1);
    CHECK_EQ(entry.ndev_ifindex, if_nametoindex("lo"));
    used = ibv_query_gid_table(context, table, 64, 0);
    CHECK(used >= 1 && used <= port.gid_tbl_len);
    CHECK(!memcmp(&table[0], &entry, sizeof(entry)));
    CHECK_EQ(ibv_query_gid_table(context, table, 0, 0), -EINVAL);
    CHECK_EQ(ibv_query_gid_ex(context, 1, port.gid_tbl_len - 1, &entry, 0), ENODATA);
    CHECK_EQ(ibv_query_gid_ex(context, 1, 0, &entry, 1), EINVAL);
    CHECK_EQ(ibv_query_gid(context, 1, port.gid_tbl_len - 1, &gid), 0);
    CHECK(!gid.global.subnet_prefix && !gid.global.interface_id);
    CHECK_EQ(ibv_query_gid(context, 1, port.gid_tbl_len, &gid), -1);
    CHECK_EQ(ibv_query_gid(context, 2, 0, &gid), -1);
    CHECK_EQ(ibv_query_gid(context, 1, -1, &gid), -1);
}

static void check_files(struct ibv_context *context)
{
    const char *type = "/sys/class/infiniband/" LOOPBACK "/ports/1/gid_attrs/types/0";
    char text[64];
    FILE *file;
    int fd;

    CHECK_EQ(ibv_read_sysfs_file(context->device->ibdev_path, "node_type", text, sizeof(text)), 5);
    CHECK(!strcmp(text, "1: CA"));
    CHECK_EQ(ibv_read_sysfs_file(context->device->ibdev_path, "board_id", text, sizeof(text)), -1);
    CHECK((fd = open(type, O_RDONLY)) >= 0);
    CHECK_EQ(read(fd, text, sizeof(text)), 8);
    CHECK(!memcmp(text, "RoCE v2\n", 8));
    close(fd);
    CHECK((file = fopen(type, "r")) != NULL);
    CHECK(fgets(text, sizeof(text), file) && !strcmp(text, "RoCE v2\n"));
    fclose(file);
    CHECK_EQ(access(type, R_OK), 0);
    CHECK_EQ(access(type, W_OK), -1);
    CHECK(open(type, O_RDWR) == -1 && errno == EACCES);
    CHECK(!fopen("/sys/class/infiniband/" LOOPBACK "/nonsense", "r") && errno == ENOENT);
    CHECK(!fopen("/sys/class/infiniband/urxe_nonsense/node_type", "r") && errno == ENOENT);
    CHECK((fd = open("/dev/null", O_RDWR)) >= 0); /* everything else is as ever */
    close(fd);
}

int main(void)
{
    struct ibv_context *context;

    check_list();
    context = open_loopback();
    CHECK(context->async_fd >= 0 && context->num_comp_vectors >= 1);
    CHECK(verbs_get_ctx(context) && verbs_get_ctx_op(context, create_qp_ex));
    check_device(context);
    check_port(context);
    check_gids(context);
    check_files(context);
    CHECK_EQ(ibv_close_device(context), 0);
    CHECK(!ibv_open_device(NULL) && errno == EINVAL);
    return 0;
}
