/* rocelab-sock: what plain sockets do, for the cases that no existing tool covers. See
 * net/README.md. */

#include "common/clock.h"
#include "common/version.h"
#include "net/report.h"
#include "net/session.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_PORT 18600u
#define EXIT_USAGE 2
#define CLOCK_WINDOW_NS 200000000ull

static const char usage[] =
    "rocelab-sock " ROCELAB_VERSION ": ping-pong and streams over plain TCP and UDP sockets\n"
    "\n"
    "  rocelab-sock server [--port P]         serve one client, then exit\n"
    "  rocelab-sock client HOST [options]     run against a server, print JSON\n"
    "  rocelab-sock clock                     print the rate of the cycle counter as JSON\n"
    "  rocelab-sock --version | --help\n"
    "\n"
    "  --port P            TCP port of the server (18600)\n"
    "  --protocol NAME     tcp, udp (tcp)\n"
    "  --test NAME         latency: half a round trip; bandwidth: client to server;\n"
    "                      bidirectional: both ways at once, the sum (latency)\n"
    "  --waiting NAME      blocking, busy-poll, or spin: a receiver asks for 100 us, then\n"
    "                      sleeps; at both ends (blocking)\n"
    "  --size BYTES        of a message (1); UDP: at most 65507\n"
    "  --messages N        in the timed region, each way (1000)\n"
    "  --warmup N          messages before it (100)\n"
    "  --seconds N         bandwidth over TCP: measure so long, in place of --messages (0: not)\n"
    "  --margin N          seconds left out before and after that (1)\n"
    "  --no-delay          TCP streams: TCP_NODELAY, so that no message waits for the next\n"
    "  --zero-copy         TCP: the kernel borrows the pages of messages (vmsplice)\n"
    "  --kernel-poll NAME  TCP: none; poll: SO_BUSY_POLL; prefer: SO_PREFER_BUSY_POLL and\n"
    "                      SO_BUSY_POLL_BUDGET, too, which need CAP_NET_ADMIN (none)\n"
    "\n"
    "Exit status: 0 done and the data was right; 1 it failed; 2 wrong use.\n";

struct options {
    const char *host;
    unsigned port;
    struct job job;
};

static bool parse_number(const char *text, uint64_t *number)
{
    char *end;

    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-')
        return false;
    *number = value;
    return true;
}

static int wrong_use(const char *what, const char *allowed)
{
    fprintf(stderr, "rocelab-sock: %s: %s\n", what, allowed);
    return -1;
}

static int parse_option(struct options *options, int option, const char *text)
{
    uint64_t number = 0;
    int index = 0;

    switch (option) {
    case 'p':
        if (!parse_number(text, &number) || number < 1 || number > 65535)
            return wrong_use(text, "a port is 1 to 65535");
        options->port = (unsigned)number;
        return 0;
    case 'P':
        if ((index = job_name_index(job_protocol_names, text)) < 0)
            return wrong_use(text, "--protocol is tcp or udp");
        options->job.protocol = (enum job_protocol)index;
        return 0;
    case 't':
        if ((index = job_name_index(job_test_names, text)) < 0)
            return wrong_use(text, "--test is latency, bandwidth or bidirectional");
        options->job.test = (enum job_test)index;
        return 0;
    case 'd':
        options->job.no_delay = true;
        return 0;
    case 'z':
        options->job.zero_copy = true;
        return 0;
    case 'w':
        if ((index = job_name_index(job_waiting_names, text)) < 0)
            return wrong_use(text, "--waiting is blocking, busy-poll or spin");
        options->job.waiting = (enum job_waiting)index;
        return 0;
    case 'k':
        if ((index = job_name_index(job_kernel_poll_names, text)) < 0)
            return wrong_use(text, "--kernel-poll is none, poll or prefer");
        options->job.kernel_poll = (enum job_kernel_poll)index;
        return 0;
    }
    if (!parse_number(text, &number))
        return wrong_use(text, "a whole number is needed");
    if (option == 's')
        options->job.size_bytes = number;
    else if (option == 'n')
        options->job.messages = number;
    else if (option == 'S')
        options->job.seconds = number;
    else if (option == 'M')
        options->job.margin_s = number;
    else
        options->job.warmup_messages = number;
    return 0;
}

static int parse(struct options *options, int argc, char **argv)
{
    static const struct option known[] = {
        {"port", required_argument, NULL, 'p'},
        {"protocol", required_argument, NULL, 'P'},
        {"test", required_argument, NULL, 't'},
        {"waiting", required_argument, NULL, 'w'},
        {"size", required_argument, NULL, 's'},
        {"messages", required_argument, NULL, 'n'},
        {"warmup", required_argument, NULL, 'u'},
        {"seconds", required_argument, NULL, 'S'},
        {"margin", required_argument, NULL, 'M'},
        {"no-delay", no_argument, NULL, 'd'},
        {"zero-copy", no_argument, NULL, 'z'},
        {"kernel-poll", required_argument, NULL, 'k'},
        {NULL, 0, NULL, 0},
    };
    int option;

    *options = (struct options){
        .port = DEFAULT_PORT,
        .job = {.size_bytes = 1, .messages = 1000, .warmup_messages = 100, .margin_s = 1},
    };
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
        if (option == '?' || parse_option(options, option, optarg) < 0)
            return -1;
    if (optind < argc)
        options->host = argv[optind++];
    if (optind < argc)
        return wrong_use(argv[optind], "not expected here; see --help");
    if (job_problem(&options->job) != NULL)
        return wrong_use("out of range", job_problem(&options->job));
    return 0;
}

static int client(const struct options *options)
{
    struct outcome outcome;
    struct failure failure;

    if (options->host == NULL) {
        wrong_use("client", "the server's host name or address is missing");
        return EXIT_USAGE;
    }
    int status = session_client(options->host, options->port, &options->job, &outcome, &failure);
    if (status == 0)
        report_write(stdout, &options->job, &outcome);
    else
        fprintf(stderr, "rocelab-sock: %s\n", failure.text);
    free(outcome.client.round_trips_ns);
    return status == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int server(const struct options *options)
{
    struct failure failure;

    if (session_server(options->port, &failure) == 0)
        return EXIT_SUCCESS;
    fprintf(stderr, "rocelab-sock: %s\n", failure.text);
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";
    struct options options;

    if (strcmp(command, "--version") == 0) {
        puts("rocelab-sock " ROCELAB_VERSION);
        return EXIT_SUCCESS;
    }
    if (strcmp(command, "--help") == 0) {
        fputs(usage, stdout);
        return EXIT_SUCCESS;
    }
    if (strcmp(command, "clock") == 0) {
        printf("{\"cycles_per_us\": %.6f}\n", clock_cycles_per_us(CLOCK_WINDOW_NS));
        return EXIT_SUCCESS;
    }
    bool is_client = strcmp(command, "client") == 0;
    if (!is_client && strcmp(command, "server") != 0) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    if (parse(&options, argc - 1, argv + 1) < 0)
        return EXIT_USAGE;
    return is_client ? client(&options) : server(&options);
}
