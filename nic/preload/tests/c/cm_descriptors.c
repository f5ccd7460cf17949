/* What event channels and identifiers have is free when they are destroyed: descriptors and ports.
 * And an identifier that is bound is resolved from where it is bound, whatever else is said. */
#include <arpa/inet.h>
#include <dirent.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>
#include <unistd.h>

#include "urxe_test.h"

enum { PORT = 7471, WAIT_MS = 10000 };

/* The descriptors of this process, each with what it is. */
static int descriptors(char *list, size_t bytes)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    CHECK(folder);
    *list = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[300], target[200];
        ssize_t length;

        if (entry->d_name[0] == '.' || atoi(entry->d_name) == dirfd(folder))
            continue;
        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        CHECK((length = readlink(path, target, sizeof(target) - 1)) >= 0);
        target[length] = 0;
        snprintf(list + strlen(list), bytes - strlen(list), "%s %s\n", entry->d_name, target);
        count++;
    }
    closedir(folder);
    return count;
}

static struct sockaddr_in address(const char *text, int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};

    CHECK_EQ(inet_pton(AF_INET, text, &to.sin_addr), 1);
    return to;
}

static struct rdma_cm_event *expect(struct rdma_event_channel *channel,
                                    enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event;

    CHECK_EQ(rdma_get_cm_event(channel, &event), 0);
    if (event->event != type)
        fprintf(stderr, "%s, status %d\n", rdma_event_str(event->event), event->status);
    CHECK_EQ(event->event, type);
    return event;
}

static void acknowledge(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
    CHECK_EQ(rdma_ack_cm_event(expect(channel, type)), 0);
}

/* Connects to a listener of this process and disconnects, ends everything; or leaves some to the
 * channel's end. */
static void connect_once(const char *text, bool is_tidy)
{
    struct rdma_event_channel *server = rdma_create_event_channel(),
                              *client = rdma_create_event_channel();
    struct sockaddr_in to = address(text, PORT);
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}},
                            passive_init = init; /* what is made is written there */
    struct rdma_conn_param param = {0};
    struct rdma_cm_id *listener, *active, *passive;
    struct rdma_cm_event *event;

    CHECK(server && client);
    CHECK_EQ(rdma_create_id(server, &listener, NULL, RDMA_PS_TCP), 0);
    CHECK_EQ(rdma_bind_addr(listener, (struct sockaddr *)&to), 0);
    CHECK_EQ(rdma_listen(listener, 0), 0);
    CHECK_EQ(rdma_create_id(client, &active, NULL, RDMA_PS_TCP), 0);
    CHECK_EQ(rdma_resolve_addr(active, NULL, (struct sockaddr *)&to, WAIT_MS), 0);
    acknowledge(client, RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK_EQ(rdma_resolve_route(active, WAIT_MS), 0);
    acknowledge(client, RDMA_CM_EVENT_ROUTE_RESOLVED);
    CHECK_EQ(rdma_create_qp(active, NULL, &init), 0);
    CHECK_EQ(rdma_connect(active, &param), 0);
    event = expect(server, RDMA_CM_EVENT_CONNECT_REQUEST);
    passive = event->id;
    CHECK_EQ(rdma_create_qp(passive, NULL, &passive_init), 0);
    CHECK_EQ(rdma_accept(passive, &param), 0);
    CHECK_EQ(rdma_ack_cm_event(event), 0);
    acknowledge(client, RDMA_CM_EVENT_ESTABLISHED);
    acknowledge(server, RDMA_CM_EVENT_ESTABLISHED);
    CHECK_EQ(rdma_disconnect(active), 0);
    acknowledge(server, RDMA_CM_EVENT_DISCONNECTED);
    acknowledge(client, RDMA_CM_EVENT_DISCONNECTED);
    rdma_destroy_qp(active);
    rdma_destroy_qp(passive);
    CHECK_EQ(rdma_destroy_id(active), 0);
    CHECK_EQ(rdma_destroy_id(passive), 0);
    if (is_tidy)
        CHECK_EQ(rdma_destroy_id(listener), 0);
    rdma_destroy_event_channel(server);
    rdma_destroy_event_channel(client);
}

static void check_descriptors(const char *text)
{
    static char before[1 << 16], after[1 << 16];
    int count;

    connect_once(text, true); /* What a process has once: devices and their threads. */
    count = descriptors(before, sizeof(before));
    for (int i = 0; i < 20; i++) {
        /* The port would be taken, too, if anything were left. */
        connect_once(text, i % 2);
        if (descriptors(after, sizeof(after)) != count) {
            fprintf(stderr, "round %d, before:\n%safter:\n%s", i, before, after);
            exit(1);
        }
    }
}

/* A source beside that of an identifier that is bound is ignored, as by the kernel. */
static void check_bound(const char *text)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct sockaddr_in bound = address(text, PORT), to = address(text, PORT + 1);
    struct sockaddr_in sources[] = {address(text, 0), address(text, PORT), address(text, PORT + 7),
                                    address("198.51.100.77", 0), address("0.0.0.0", 0)};

    for (size_t i = 0; i < sizeof(sources) / sizeof(*sources); i++) {
        struct rdma_cm_id *id;

        CHECK_EQ(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
        CHECK_EQ(rdma_bind_addr(id, (struct sockaddr *)&bound), 0);
        CHECK_EQ(
            rdma_resolve_addr(id, (struct sockaddr *)&sources[i], (struct sockaddr *)&to, WAIT_MS),
            0);
        acknowledge(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
        CHECK_EQ(ntohs(rdma_get_src_port(id)), PORT);
        CHECK(!memcmp(&rdma_get_local_addr(id)->sa_data[2], &bound.sin_addr, 4));
        CHECK_EQ(rdma_destroy_id(id), 0);
    }
    rdma_destroy_event_channel(channel);
}

int main(int argc, char **argv)
{
    CHECK_EQ(argc, 2);
    check_bound(argv[1]);
    check_descriptors(argv[1]);
    return 0;
}
