/* An ordinary program of sockets: echo HOST PORT serves one connection, echo HOST PORT connect uses
 * it. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { COUNT = 200000, PIECE = 5000 };

static void check(int ok, const char *what)
{
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static void serve(int fd, const struct sockaddr_in *address)
{
    check(bind(fd, (const struct sockaddr *)address, sizeof *address) == 0, "bind");
    check(listen(fd, 1) == 0, "listen");
    int connection = accept(fd, NULL, NULL);
    check(connection >= 0, "accept");
    char piece[PIECE];
    ssize_t got;
    while ((got = read(connection, piece, sizeof piece)) > 0) {
        for (ssize_t sent = 0; sent < got;) {
            ssize_t now = write(connection, piece + sent, got - sent);
            check(now > 0, "write");
            sent += now;
        }
    }
    close(connection);
}

static void use(int fd, const struct sockaddr_in *address)
{
    static char out[PIECE], in[PIECE];
    check(connect(fd, (const struct sockaddr *)address, sizeof *address) == 0, "connect");
    for (int total = 0; total < COUNT; total += PIECE) {
        for (int at = 0; at < PIECE; at++) {
            out[at] = (char)(total / PIECE + at);
        }
        check(send(fd, out, PIECE, 0) == PIECE, "send");
        for (int at = 0; at < PIECE;) {
            ssize_t got = recv(fd, in + at, PIECE - at, 0);
            check(got > 0, "recv");
            at += got;
        }
        check(memcmp(in, out, PIECE) == 0, "compare");
    }
    printf("echoed %d bytes\n", COUNT);
}

int main(int argc, char **argv)
{
    check(argc >= 3, "usage: echo HOST PORT [connect]");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    check(inet_pton(AF_INET, argv[1], &address.sin_addr) == 1, "inet_pton");
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    check(fd >= 0, "socket");
    if (argc == 3) {
        serve(fd, &address);
    } else {
        use(fd, &address);
    }
    return close(fd) != 0;
}
