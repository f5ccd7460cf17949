/* What programs read under /sys/class/infiniband and its neighbours, in all the ways that they do.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "urxe_test.h"

#define CLASS "/sys/class/infiniband"
#define DEVICE CLASS "/" LOOPBACK
/* The loopback interface is the first of every network namespace. */
#define BUS "f0ce:00"
#define FUNCTION "f0ce:00:01.0"
#define ROOT "/sys/devices/pci" BUS
#define PLACE ROOT "/" FUNCTION
#define REAL PLACE "/infiniband/" LOOPBACK
#define UVERBS "uverbs100001"
#define VERBS "/sys/class/infiniband_verbs/" UVERBS
#define NODE "/dev/infiniband/" UVERBS

/* How often a name stands in an open folder; all entries are counted. */
static int count(DIR *folder, const char *name, int *all)
{
    struct dirent *entry;
    int found = 0;

    *all = 0;
    while ((entry = readdir(folder))) {
        ++*all;
        found += !strcmp(entry->d_name, name);
        CHECK(entry->d_ino != 0);
    }
    return found;
}

static void lists(const char *path, const char *name)
{
    DIR *folder = opendir(path);
    struct dirent *first;
    long begin;
    int all, again;

    CHECK(folder);
    begin = telldir(folder);
    CHECK((first = readdir(folder)) != NULL);
    seekdir(folder, begin);
    CHECK_EQ(count(folder, name, &all), 1);
    rewinddir(folder);
    CHECK_EQ(count(folder, name, &again), 1);
    CHECK(all == again && all >= 3); /* "." and ".." are there, too */
    CHECK(dirfd(folder) >= 0);
    CHECK_EQ(closedir(folder), 0);
}

static int is_ours(const struct dirent *entry)
{
    return !strncmp(entry->d_name, "urxe_", 5);
}

static void check_folders(void)
{
    struct dirent **list;
    struct stat info;
    char text[64];
    int fd, inner, all, found;
    DIR *folder;

    lists(CLASS, LOOPBACK);
    lists(CLASS "/", LOOPBACK);
    lists("/sys/class/infiniband_verbs", UVERBS);
    lists("/sys/class/infiniband_verbs", "abi_version");
    lists("/dev/infiniband", UVERBS);
    lists(DEVICE, "node_guid");
    lists(DEVICE "/ports", "1");
    lists(DEVICE "/ports/1", "gid_attrs");
    lists(DEVICE "/ports/1/gids", "0");
    lists(DEVICE "/ports/1/gid_attrs/types", "0");
    lists(REAL "/ports/1/pkeys", "0");
    lists(DEVICE "/ports/1/counters", "port_xmit_data");
    lists(DEVICE "/ports/1/hw_counters", "out_of_buffer");
    lists(DEVICE "/device", "local_cpulist");
    lists(DEVICE "/device/net", "lo");
    lists(DEVICE "/device/net/lo", "ifindex");
    lists(DEVICE "/device/infiniband_verbs", UVERBS);
    lists("/sys/bus/pci/devices", FUNCTION);
    lists("/sys/bus/pci/devices/" FUNCTION, "vendor");
    lists("/sys/class", "infiniband");
    lists("/sys/class/pci_bus", BUS);
    lists("/sys/devices", "pci" BUS);
    lists(ROOT, FUNCTION);
    lists("/dev", "infiniband");
    lists(VERBS, "ibdev");
    CHECK(!opendir(DEVICE "/node_guid") && errno == ENOTDIR);
    CHECK(!opendir(DEVICE "/nonsense") && errno == ENOENT);
    found = scandir(CLASS, &list, is_ours, alphasort);
    CHECK(found >= 1);
    for (int i = 1; i < found; i++)
        CHECK(strcmp(list[i - 1]->d_name, list[i]->d_name) < 0);
    for (int i = 0; i < found; i++)
        free(list[i]);
    free(list);
    /* From folder to folder, as hwloc walks. */
    CHECK((fd = open(CLASS, O_RDONLY | O_DIRECTORY)) >= 0);
    CHECK_EQ(fstat(fd, &info), 0);
    CHECK(S_ISDIR(info.st_mode));
    CHECK_EQ(fstatat(fd, LOOPBACK "/ports", &info, 0), 0);
    CHECK(S_ISDIR(info.st_mode));
    CHECK_EQ(faccessat(fd, LOOPBACK "/node_type", R_OK, 0), 0);
    CHECK((inner = openat(fd, LOOPBACK "/ports/1", O_RDONLY | O_DIRECTORY)) >= 0);
    CHECK((folder = fdopendir(inner)) != NULL);
    CHECK_EQ(count(folder, "link_layer", &all), 1);
    CHECK_EQ(closedir(folder), 0);
    CHECK((inner = openat(fd, LOOPBACK "/ports/1/link_layer", O_RDONLY)) >= 0);
    CHECK_EQ(read(inner, text, sizeof(text)), 9);
    CHECK(!memcmp(text, "Ethernet\n", 9));
    close(inner);
    close(fd);
    CHECK((fd = open("/", O_RDONLY | O_DIRECTORY)) >= 0);
    CHECK((inner = openat(fd, "sys/class/infiniband", O_RDONLY | O_DIRECTORY)) >= 0);
    CHECK((folder = fdopendir(inner)) != NULL);
    CHECK_EQ(count(folder, LOOPBACK, &all), 1);
    CHECK_EQ(closedir(folder), 0);
    CHECK_EQ(fstatat(fd, "sys/class/infiniband/" LOOPBACK, &info, 0), 0);
    close(fd);
    CHECK((folder = opendir("/")) != NULL); /* everything else is as ever */
    CHECK_EQ(count(folder, "proc", &all), 1);
    CHECK_EQ(closedir(folder), 0);
}

static void check_links(void)
{
    /* The kernel follows a link before it goes up. */
    static const struct {
        const char *path, *to;
    } resolves[] = {
        {DEVICE, REAL},
        {DEVICE "/..", PLACE "/infiniband"},
        {DEVICE "/../..", PLACE},
        {DEVICE "/device", PLACE},
        {DEVICE "/device/subsystem/devices/" FUNCTION, PLACE},
        {DEVICE "/subsystem", CLASS},
        {DEVICE "/subsystem/" LOOPBACK "/device/net/lo", PLACE "/net/lo"},
        {VERBS, PLACE "/infiniband_verbs/" UVERBS},
        {VERBS "/device", PLACE},
        {VERBS "/subsystem", "/sys/class/infiniband_verbs"},
        {"/sys/class/pci_bus/" BUS "/../../" FUNCTION, PLACE},
        {"/sys/bus/pci/devices/" FUNCTION, PLACE},
        {"/sys/class/../class/infiniband", CLASS},
        {DEVICE "/subsystem/../../../proc", "/proc"}, /* out of what is ours */
    };
    char target[PATH_MAX], *resolved;
    struct stat info;
    ssize_t length;

    CHECK((length = readlink(DEVICE, target, sizeof(target))) > 0);
    target[length] = 0;
    CHECK(!strcmp(target, "../../devices/pci" BUS "/" FUNCTION "/infiniband/" LOOPBACK));
    CHECK_EQ(readlink(DEVICE, target, 5), 5);
    CHECK(readlink(DEVICE "/", target, sizeof(target)) == -1 && errno == EINVAL);
    CHECK(readlink(DEVICE "/node_guid", target, sizeof(target)) == -1 && errno == EINVAL);
    CHECK((length = readlink(DEVICE "/device", target, sizeof(target))) > 0);
    CHECK_EQ(length, strlen("../../../" FUNCTION));
    CHECK((resolved = realpath(DEVICE "/ports/../ports/1", NULL)) != NULL);
    CHECK(!strcmp(resolved, REAL "/ports/1"));
    free(resolved);
    for (unsigned i = 0; i < sizeof(resolves) / sizeof(*resolves); i++) {
        CHECK(realpath(resolves[i].path, target) == target);
        if (strcmp(target, resolves[i].to)) {
            fprintf(stderr, "%s is %s, not %s\n", resolves[i].path, target, resolves[i].to);
            exit(1);
        }
    }
    CHECK_EQ(lstat(DEVICE, &info), 0);
    CHECK(S_ISLNK(info.st_mode));
    CHECK_EQ(stat(DEVICE, &info), 0);
    CHECK(S_ISDIR(info.st_mode));
}

/* What a file says, without its newline. */
static char *says(const char *path)
{
    static char text[4096];
    int fd = open(path, O_RDONLY);
    ssize_t length;

    CHECK(fd >= 0);
    CHECK((length = read(fd, text, sizeof(text) - 1)) >= 0);
    text[length] = 0;
    text[strcspn(text, "\n")] = 0;
    close(fd);
    return text;
}

static void check_function(void)
{
    unsigned char config[64];
    struct stat opened, named;
    char text[32];
    int fd;

    CHECK(!strcmp(says(DEVICE "/device/class"), "0x020000"));
    CHECK(!strcmp(says(DEVICE "/device/vendor"), "0xf0ce"));
    CHECK(!strcmp(says(DEVICE "/device/numa_node"), "-1"));
    snprintf(text, sizeof(text), "0-%ld", sysconf(_SC_NPROCESSORS_CONF) - 1);
    CHECK(!strncmp(says(DEVICE "/device/local_cpulist"), text, strlen(text)) ||
          !strcmp(text, "0-0"));
    CHECK(!strcmp(says(DEVICE "/device/net/lo/ifindex"), "1"));
    CHECK(!strcmp(says(DEVICE "/device/net/lo/type"), "772"));
    CHECK(!strcmp(says(DEVICE "/parent"), "lo"));
    CHECK((fd = open(DEVICE "/device/config", O_RDONLY)) >= 0);
    CHECK_EQ(read(fd, config, sizeof(config)), sizeof(config));
    CHECK(config[0] == 0xce && config[1] == 0xf0 && config[11] == 2);
    CHECK(write(fd, config, 1) == -1);
    CHECK_EQ(fstat(fd, &opened), 0); /* cp(1) compares the two */
    CHECK_EQ(stat(PLACE "/config", &named), 0);
    CHECK(opened.st_ino == named.st_ino && opened.st_dev == named.st_dev);
    CHECK(S_ISREG(opened.st_mode) && opened.st_size == 4096);
    close(fd);
    /* As the kernel: there is such a file, and nothing that it could say. */
    CHECK_EQ(stat(DEVICE "/ports/1/gid_attrs/types/63", &named), 0);
    CHECK(open(DEVICE "/ports/1/gid_attrs/types/63", O_RDONLY) == -1 && errno == EINVAL);
    CHECK(stat(DEVICE "/ports/1/gid_attrs/types/64", &named) == -1 && errno == ENOENT);
}

static void check_nodes(void)
{
    struct statx wide;
    struct stat info;
    char text[64];
    FILE *file;

    CHECK_EQ(stat(NODE, &info), 0);
    CHECK(S_ISCHR(info.st_mode));
    CHECK_EQ(access(NODE, R_OK | W_OK), 0);
    CHECK(open(NODE, O_RDWR) == -1 && errno == ENXIO);
    CHECK((file = fopen(VERBS "/dev", "r")) != NULL);
    CHECK(fgets(text, sizeof(text), file));
    CHECK_EQ(atoi(text), major(info.st_rdev));
    fclose(file);
    CHECK((file = fopen(VERBS "/ibdev", "r")) != NULL);
    CHECK(fgets(text, sizeof(text), file) && !strcmp(text, LOOPBACK "\n"));
    fclose(file);
    CHECK((file = fopen("/sys/class/infiniband_verbs/abi_version", "r")) != NULL);
    CHECK(fgets(text, sizeof(text), file) && !strcmp(text, "6\n"));
    fclose(file);
    CHECK_EQ(statx(AT_FDCWD, DEVICE "/node_guid", 0, STATX_ALL, &wide), 0);
    CHECK(S_ISREG(wide.stx_mode) && wide.stx_size == 4096);
    CHECK_EQ(stat(CLASS, &info), 0);
    CHECK(S_ISDIR(info.st_mode));
    CHECK_EQ(access(CLASS, R_OK | X_OK), 0);
    CHECK(stat(DEVICE "/nonsense", &info) == -1 && errno == ENOENT);
    CHECK(stat(CLASS "/mlx5_77", &info) == -1 && errno == ENOENT);
    CHECK(open(DEVICE, O_RDWR) == -1 && errno == EISDIR);
    CHECK(open(DEVICE "/node_guid", O_RDONLY | O_DIRECTORY) == -1 && errno == ENOTDIR);
}

int main(void)
{
    check_folders();
    check_links();
    check_function();
    check_nodes();
    return 0;
}
