// Lists what is at each path that it is given, as deep as it goes: kind, permissions, path, and
// where a link leads or what is in a file.
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void content(const char *path)
{
    char text[4096];
    int file = open(path, O_RDONLY);
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text);
    // What cannot be read is as good as empty.
    for (ssize_t at = 0; at < length; at++) {
        if (text[at] == '\n')
            fputs("\\n", stdout);
        else
            putchar(text[at]);
    }
    if (file >= 0)
        close(file);
    putchar('\n');
}

static void show(const char *path)
{
    struct stat about;
    if (lstat(path, &about) != 0) {
        perror(path);
        exit(1);
    }
    printf("%06o %s ", about.st_mode, path);
    if (S_ISLNK(about.st_mode)) {
        char target[PATH_MAX] = "";
        if (readlink(path, target, sizeof target - 1) < 0)
            perror(path);
        puts(target);
        return;
    }
    if (!S_ISDIR(about.st_mode)) {
        content(path);
        return;
    }
    puts("");
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, alphasort);
    for (int index = 0; index < count; index++) {
        const char *name = entries[index]->d_name;
        char inside[PATH_MAX];
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0) {
            snprintf(inside, sizeof inside, "%s/%s", path, name);
            show(inside);
        }
        free(entries[index]);
    }
    free(entries);
}

int main(int argc, char **argv)
{
    for (int index = 1; index < argc; index++)
        show(argv[index]);
    return 0;
}
