/* Walks through /sys that libc does by itself, working folders there, and files that are read
 * again.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "urxe_test.h"

#define CLASS "/sys/class/infiniband"
#define DEVICE CLASS "/" LOOPBACK
#define PLACE "/sys/devices/pcif0ce:00/f0ce:00:01.0"
#define REAL PLACE "/infiniband/" LOOPBACK

/* Something in the middle of the tree: nothing else has this name. */
#define NAME "gid_attrs"

static int matches(const char *pattern, int flags, const char *wanted)
{
    glob_t found = {.gl_offs = 0};
    int status = glob(pattern, flags, NULL, &found), count = 0;

    CHECK(status == 0 || status == GLOB_NOMATCH);
    CHECK(!(found.gl_flags & GLOB_ALTDIRFUNC));
    for (size_t i = 0; i < found.gl_pathc; i++)
        count += !strcmp(found.gl_pathv[i], wanted);
    globfree(&found);
    return count;
}

static void check_glob(void)
{
    CHECK_EQ(matches(CLASS "/*", 0, DEVICE), 1);
    CHECK_EQ(matches("/s*/class/infini*/urxe_*", 0, DEVICE), 1);
    CHECK_EQ(matches("/sys/class/infiniband*", GLOB_ONLYDIR, CLASS), 1);
    CHECK_EQ(matches(DEVICE "/ports/*/hw_counters/*", 0, DEVICE "/ports/1/hw_counters/sent_pkts"),
             1);
    CHECK_EQ(matches("{/proc,/sys}/class/infiniband/*", GLOB_BRACE, DEVICE), 1);
    CHECK_EQ(matches(DEVICE "/device/net/*", GLOB_MARK, DEVICE "/device/net/lo/"), 1);
    CHECK_EQ(matches("/sys/class/infiniband/nonsense*", 0, ""), 0);
    CHECK_EQ(matches("/proc/self/st*", 0, "/proc/self/status"), 1); /* as ever */
}

static int folders, files, links, named, after, deepest;

static int visit(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    CHECK(info->st_ino || kind == FTW_NS);
    folders += kind == FTW_D;
    after += kind == FTW_DP;
    files += kind == FTW_F;
    links += kind == FTW_SL;
    named += !strcmp(path + at->base, NAME);
    if (at->level > deepest)
        deepest = at->level;
    return 0;
}

static int visit_old(const char *path, const struct stat *info, int kind)
{
    (void)info;
    files += kind == FTW_F;
    named += strlen(path) > strlen(NAME) && !strcmp(path + strlen(path) - strlen(NAME), NAME);
    return 0;
}

static int stop(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info, (void)kind, (void)at;
    return strstr(path, "/ports/1/") ? 7 : 0;
}

static int skip(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info, (void)kind;
    named += !strcmp(path + at->base, NAME);
    return strcmp(path + at->base, "ports") ? FTW_CONTINUE : FTW_SKIP_SUBTREE;
}

/* Where the walk is, a file's name alone is enough. */
static int visit_there(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    struct stat again;

    CHECK_EQ(lstat(path + at->base, &again), 0);
    CHECK(again.st_ino == info->st_ino);
    files += kind == FTW_F;
    return 0;
}

static void check_ftw(void)
{
    char here[PATH_MAX], there[PATH_MAX];

    CHECK_EQ(nftw(REAL, visit, 16, FTW_PHYS), 0);
    CHECK(folders > 8 && files > 200 && links == 2 && named == 1 && deepest == 5 && !after);
    int count = folders;
    CHECK_EQ(nftw(REAL "/", visit, 16, FTW_PHYS | FTW_DEPTH), 0);
    CHECK(after == count && folders == count && named == 2);
    files = named = 0;
    CHECK_EQ(ftw(REAL "/ports", visit_old, 16), 0);
    CHECK(files > 200 && named == 1);
    CHECK_EQ(nftw(REAL, stop, 16, FTW_PHYS), 7);
    named = 0;
    CHECK_EQ(nftw(REAL, skip, 16, FTW_PHYS | FTW_ACTIONRETVAL), 0);
    CHECK_EQ(named, 0);
    files = 0;
    CHECK(getcwd(here, sizeof(here)));
    CHECK_EQ(nftw(REAL, visit_there, 16, FTW_PHYS | FTW_CHDIR), 0);
    CHECK(files > 200);
    CHECK(getcwd(there, sizeof(there)) && !strcmp(here, there));
    /* With links, and every folder once. */
    named = 0;
    CHECK_EQ(nftw(CLASS, visit, 16, FTW_MOUNT), 0);
    CHECK(named >= 1);
    CHECK(nftw(CLASS "/nonsense", visit, 16, 0) == -1 && errno == ENOENT);
    CHECK_EQ(nftw("/proc/self/ns", visit, 16, FTW_PHYS), 0); /* as ever */
}

static int by_name(const FTSENT **left, const FTSENT **right)
{
    return strcmp((*left)->fts_name, (*right)->fts_name);
}

static void check_fts(void)
{
    char device[] = REAL, link[] = DEVICE, real[] = "/proc/self/ns";
    char *roots[] = {device, NULL}, *links[] = {link, NULL}, *reals[] = {real, NULL};
    int before = 0, after = 0, files = 0, symlinks = 0, skipped = 0;
    FTSENT *entry, *child;
    FTS *walk;

    CHECK((walk = fts_open(roots, FTS_PHYSICAL, by_name)) != NULL);
    while ((entry = fts_read(walk))) {
        CHECK(entry->fts_namelen == strlen(entry->fts_name));
        CHECK(entry->fts_pathlen == strlen(entry->fts_path));
        before += entry->fts_info == FTS_D;
        after += entry->fts_info == FTS_DP;
        files += entry->fts_info == FTS_F;
        symlinks += entry->fts_info == FTS_SL;
        if (entry->fts_info == FTS_F)
            CHECK_EQ(entry->fts_statp->st_size, 4096);
        if (!strcmp(entry->fts_name, "gids") && entry->fts_info == FTS_D) {
            int count = 0;

            for (child = fts_children(walk, 0); child; child = child->fts_link)
                count++;
            CHECK_EQ(count, 64);
        }
        if (!strcmp(entry->fts_name, NAME) && entry->fts_info == FTS_D) {
            CHECK_EQ(fts_set(walk, entry, FTS_SKIP), 0);
            skipped++;
        }
        CHECK(!strstr(entry->fts_path, NAME "/"));
    }
    CHECK(before == 8 && before == after && files > 100 && symlinks == 2 && skipped == 1);
    CHECK_EQ(fts_close(walk), 0);
    CHECK((walk = fts_open(links, FTS_PHYSICAL | FTS_NOCHDIR, NULL)) != NULL);
    CHECK((entry = fts_read(walk)) && entry->fts_info == FTS_SL);
    CHECK_EQ(fts_set(walk, entry, FTS_FOLLOW), 0);
    CHECK((entry = fts_read(walk)) && entry->fts_info == FTS_D && entry->fts_level == 0);
    CHECK((entry = fts_read(walk)) && entry->fts_level == 1);
    CHECK(!strncmp(entry->fts_path, DEVICE "/", strlen(DEVICE "/")));
    CHECK_EQ(fts_close(walk), 0);
    CHECK((walk = fts_open(reals, FTS_PHYSICAL, NULL)) != NULL);
    CHECK((entry = fts_read(walk)) && entry->fts_info == FTS_D);
    CHECK_EQ(fts_close(walk), 0);
}

/* What a program prints that is started here. */
static void prints(const char *command, const char *wanted)
{
    char line[256] = "";
    FILE *pipe = popen(command, "r");

    CHECK(pipe);
    CHECK(fgets(line, sizeof(line), pipe));
    line[strcspn(line, "\n")] = 0;
    if (strcmp(line, wanted)) {
        fprintf(stderr, "%s prints %s, not %s\n", command, line, wanted);
        exit(1);
    }
    CHECK_EQ(pclose(pipe), 0);
}

static void check_working_folder(void)
{
    char text[PATH_MAX], here[PATH_MAX], *path;
    struct stat info;
    int fd;
    DIR *folder;

    CHECK(getcwd(here, sizeof(here)));
    CHECK(chdir(DEVICE "/node_guid") == -1 && errno == ENOTDIR);
    CHECK(chdir(DEVICE "/nonsense") == -1 && errno == ENOENT);
    CHECK_EQ(chdir(DEVICE), 0);
    CHECK(getcwd(text, sizeof(text)) == text && !strcmp(text, REAL));
    CHECK(!getcwd(text, 5) && errno == ERANGE);
    CHECK((path = getcwd(NULL, 0)) && !strcmp(path, REAL));
    free(path);
    CHECK((path = get_current_dir_name()) && !strcmp(path, REAL));
    free(path);
    CHECK((fd = open("ports/1/link_layer", O_RDONLY)) >= 0);
    CHECK_EQ(read(fd, text, sizeof(text)), 9);
    close(fd);
    CHECK_EQ(stat(".", &info), 0);
    CHECK(S_ISDIR(info.st_mode));
    CHECK_EQ(access("../../numa_node", R_OK), 0);
    CHECK_EQ(access("/proc/self", R_OK), 0);
    CHECK_EQ(access("../../../../../../proc/self", R_OK), 0);
    CHECK(realpath("device", text) && !strcmp(text, PLACE));
    CHECK((folder = opendir(".")) != NULL);
    CHECK_EQ(closedir(folder), 0);
    CHECK_EQ(matches("ports/*/rate", 0, "ports/1/rate"), 1);
    CHECK_EQ(chdir("ports"), 0);
    prints("pwd", REAL "/ports");
    prints("cat 1/link_layer", "Ethernet");
    prints("cd .. && ls node_guid", "node_guid");
    prints("cat < 1/link_layer", "Ethernet");
    /* By a descriptor, as find(1) does. */
    CHECK((fd = open("1", O_RDONLY | O_DIRECTORY)) >= 0);
    CHECK_EQ(chdir("/"), 0);
    CHECK(getcwd(text, sizeof(text)) && !strcmp(text, "/"));
    CHECK_EQ(fchdir(fd), 0);
    close(fd);
    CHECK(getcwd(text, sizeof(text)) && !strcmp(text, REAL "/ports/1"));
    CHECK_EQ(chdir(here), 0);
    CHECK(getcwd(text, sizeof(text)) && !strcmp(text, here));
}

static unsigned long long count(int fd)
{
    char text[32] = "";

    CHECK(read(fd, text, sizeof(text) - 1) > 0);
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    return strtoull(text, NULL, 10);
}

/* Counters are opened once and read before and after. */
static void check_counters(void)
{
    int packets = open(DEVICE "/ports/1/counters/port_xmit_packets", O_RDONLY);
    int words = open(DEVICE "/ports/1/counters/port_xmit_data", O_RDONLY);
    int sent = open(DEVICE "/ports/1/hw_counters/sent_pkts", O_RDONLY);
    struct ibv_send_wr wr, *bad;
    struct ibv_sge sge;
    struct pair pair;
    char text[32] = "";

    CHECK(packets >= 0 && words >= 0 && sent >= 0);
    CHECK(write(packets, "0", 1) == -1);
    CHECK(open(DEVICE "/ports/1/counters/port_xmit_data", O_WRONLY) == -1 && errno == EACCES);
    CHECK(!fopen(DEVICE "/ports/1/counters/port_xmit_data", "w") && errno == EACCES);
    CHECK_EQ(count(packets), 0);
    CHECK_EQ(count(words), 0);
    pair = make_pair((struct pair_options){0});
    post_receive(&pair.right, 1, 0, 1000);
    wr = request(&pair.left, &sge, 2, IBV_WR_SEND, 1000);
    CHECK_EQ(ibv_post_send(pair.left.qp, &wr, &bad), 0);
    CHECK_EQ(next_completion(pair.right.cq, pair.left.cq).status, IBV_WC_SUCCESS);
    CHECK_EQ(next_completion(pair.left.cq, pair.right.cq).status, IBV_WC_SUCCESS);
    unsigned long long packets_sent = count(packets), words_sent = count(words);
    CHECK(packets_sent >= 2); /* and an acknowledgement */
    CHECK(words_sent >= 1000 / 4 && words_sent < 1000);
    CHECK(count(sent) >= packets_sent);
    CHECK(pread(packets, text, sizeof(text) - 1, 0) > 0);
    CHECK(strtoull(text, NULL, 10) >= packets_sent);
    destroy_pair(&pair);
    close(packets);
    close(words);
    close(sent);
}

int main(void)
{
    check_glob();
    check_ftw();
    check_fts();
    check_working_folder();
    check_counters();
    return 0;
}
