/* Commands of RDMA-CM that are newer than the installed headers, as librdmacm writes them: events
 * of the program's own, and service resolution, which Ethernet has none of. Numbers and layouts are
 * those of Linux 6.18's <rdma/rdma_user_cm.h>. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_user_cm.h>
#include <unistd.h>

#include "urxe_test.h"

enum { RESOLVE_SERVICE = 23, WRITE_EVENT = 24, QUERY_SERVICE = 3, USER = 18, INTERNAL = 19 };

struct write_event {
    uint32_t id, reserved, event, status;
    union {
        struct rdma_ucm_conn_param conn;
        struct rdma_ucm_ud_param ud;
        uint64_t arg;
    } param;
};

struct resolve_service {
    uint32_t id, reserved;
    uint64_t service_id;
    uint8_t name[64];
    uint32_t flags, reserved_too;
};

/* The errno that a command ends with. */
static int command(int file, uint32_t number, const void *body, size_t bytes, size_t room)
{
    struct {
        struct rdma_ucm_cmd_hdr header;
        char body[512];
    } written = {{number, bytes, room}, {0}};

    memcpy(written.body, body, bytes);
    return write(file, &written, sizeof(written.header) + bytes) < 0 ? errno : 0;
}

static int write_event(int file, uint32_t id, uint32_t event, uint64_t arg)
{
    struct write_event body = {.id = id, .event = event, .status = -7, .param.arg = arg};

    return command(file, WRITE_EVENT, &body, sizeof(body), 0);
}

static uint32_t create_id(int file, uint64_t uid)
{
    struct rdma_ucm_create_id_resp answer = {0};
    struct rdma_ucm_create_id body = {
        .uid = uid, .response = (uintptr_t)&answer, .ps = RDMA_PS_TCP, .qp_type = IBV_QPT_RC};

    CHECK_EQ(command(file, RDMA_USER_CM_CMD_CREATE_ID, &body, sizeof(body), sizeof(answer)), 0);
    return answer.id;
}

static void bind_to(int file, uint32_t id, const char *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    struct rdma_ucm_bind body = {.id = id, .addr_size = sizeof(to)};

    CHECK_EQ(inet_pton(AF_INET, address, &to.sin_addr), 1);
    memcpy(&body.addr, &to, sizeof(to));
    CHECK_EQ(command(file, RDMA_USER_CM_CMD_BIND, &body, sizeof(body), 0), 0);
}

static void check_events(int file, uint32_t id)
{
    struct pollfd poll_fd = {.fd = file, .events = POLLIN};
    uint64_t args[] = {0x123456789abcdef0, 7}, arg;
    struct rdma_ucm_event_resp event;
    struct rdma_ucm_get_event get = {(uintptr_t)&event};

    CHECK_EQ(poll(&poll_fd, 1, 0), 0);
    CHECK_EQ(write_event(file, id, USER, args[0]), 0);
    CHECK_EQ(write_event(file, id, INTERNAL, args[1]), 0);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(poll(&poll_fd, 1, 0), 1);
        memset(&event, 0xee, sizeof(event));
        CHECK_EQ(command(file, RDMA_USER_CM_CMD_GET_EVENT, &get, sizeof(get), sizeof(event)), 0);
        memcpy(&arg, &event.param, sizeof(arg));
        CHECK(event.uid == 42 && event.id == id && arg == args[i]);
        CHECK_EQ(event.event, i ? INTERNAL : USER);
        CHECK_EQ((int)event.status, -7);
    }
    CHECK_EQ(poll(&poll_fd, 1, 0), 0);
    CHECK_EQ(write_event(file, id, 9, 0), EINVAL); /* ESTABLISHED is not for programs to say */
    CHECK_EQ(write_event(file, id + 1000, USER, 0), ENOENT);
}

static int resolve_service(int file, uint32_t id)
{
    struct resolve_service body = {.id = id, .service_id = 1, .flags = 1};

    return command(file, RESOLVE_SERVICE, &body, sizeof(body), 0);
}

static int query_service(int file, uint32_t id, size_t room)
{
    char answer[256];
    struct rdma_ucm_query body = {.response = (uintptr_t)answer, .id = id, .option = QUERY_SERVICE};

    return command(file, RDMA_USER_CM_CMD_QUERY, &body, sizeof(body), room);
}

int main(int argc, char **argv)
{
    int file = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
    struct rdma_ucm_destroy_id_resp destroyed = {0};
    uint32_t id = create_id(file, 42);
    struct rdma_ucm_destroy_id destroy = {.response = (uintptr_t)&destroyed, .id = id};

    CHECK(argc == 2 && file >= 0);
    check_events(file, id);
    CHECK_EQ(resolve_service(file, id), EINVAL); /* of no device yet */
    bind_to(file, id, argv[1]);
    CHECK_EQ(resolve_service(file, id), EOPNOTSUPP);
    CHECK_EQ(query_service(file, id, 256), ENODATA);
    CHECK_EQ(query_service(file, id, 7), ENOSPC);
    CHECK_EQ(query_service(file, id + 1000, 256), ENOENT);
    CHECK_EQ(
        command(file, RDMA_USER_CM_CMD_DESTROY_ID, &destroy, sizeof(destroy), sizeof(destroyed)),
        0);
    CHECK_EQ(destroyed.events_reported, 2);
    CHECK_EQ(close(file), 0);
    return 0;
}
