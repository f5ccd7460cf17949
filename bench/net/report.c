#include "net/report.h"

#include "common/stats.h"

#include <inttypes.h>
#include <string.h>

#define NS_PER_US 1000.0
#define NS_PER_S 1e9
#define BITS_PER_BYTE 8.0
/* bytes per nanosecond times this are 10^6 bits per second */
#define MBPS_PER_BYTE_PER_NS (BITS_PER_BYTE * 1000.0)

static void write_latency(FILE *out, const struct job *job, struct outcome *outcome)
{
    struct stats round_trip = stats_of(outcome->client.round_trips_ns, job->messages);
    const double half_us = 0.5 / NS_PER_US;

    fprintf(out,
            "  \"latency_us\": {\"min\": %.3f, \"mean\": %.3f, \"p50\": %.3f, \"p99\": %.3f, "
            "\"max\": %.3f},\n",
            round_trip.min * half_us, round_trip.mean * half_us, round_trip.p50 * half_us,
            round_trip.p99 * half_us, round_trip.max * half_us);
}

static double rate_mbps(uint64_t bytes, uint64_t elapsed_ns)
{
    return elapsed_ns == 0 ? 0 : (double)bytes / (double)elapsed_ns * MBPS_PER_BYTE_PER_NS;
}

/*
 * TCP: the client's clock stops when it knows that everything arrived at both ends. UDP gives no
 * such knowledge, and a stream for some seconds has no such end: each direction is what its
 * receiver got, by the receiver's clock.
 */
static void write_bandwidth(FILE *out, const struct job *job, const struct outcome *outcome)
{
    const struct measurement *client = &outcome->client;
    const struct measurement *server = &outcome->server;
    uint64_t sent_bytes = client->sent_bytes + server->sent_bytes;
    uint64_t received_bytes = client->received_bytes + server->received_bytes;
    bool by_client = job->protocol == JOB_TCP && job->seconds == 0;
    double bandwidth_mbps = by_client ? rate_mbps(received_bytes, client->elapsed_ns)
                                      : rate_mbps(client->received_bytes, client->elapsed_ns) +
                                            rate_mbps(server->received_bytes, server->elapsed_ns);
    /* What is sent between two moments is not what arrives between them. */
    uint64_t lost_bytes = job->seconds > 0 ? 0 : sent_bytes - received_bytes;

    fprintf(out,
            "  \"bandwidth_mbps\": %.6f,\n  \"message_rate_per_s\": %.3f,\n"
            "  \"lost_messages\": %" PRIu64 ",\n",
            bandwidth_mbps, bandwidth_mbps * 1e6 / BITS_PER_BYTE / (double)job->size_bytes,
            lost_bytes / job->size_bytes);
}

/* What UDP does not have is null, and the number of a NAPI where packets do not come by one. */
static void write_link(FILE *out, const struct link_settings *link)
{
    if (strcmp(link->congestion_control, LINK_NO_CONGESTION_CONTROL) == 0)
        fprintf(out, "\"congestion_control\": null, \"mss_bytes\": null");
    else
        fprintf(out, "\"congestion_control\": \"%s\", \"mss_bytes\": %d", link->congestion_control,
                link->mss_bytes);
    fprintf(out, ", \"send_buffer_bytes\": %d, \"receive_buffer_bytes\": %d",
            link->send_buffer_bytes, link->receive_buffer_bytes);
    if (link->napi_id != 0)
        fprintf(out, ", \"napi_id\": %d", link->napi_id);
    else
        fprintf(out, ", \"napi_id\": null");
    fprintf(out, ", \"busy_poll_us\": %d, \"prefer_busy_poll\": %s", link->busy_poll_us,
            link->prefer_busy_poll ? "true" : "false");
}

static void write_end(FILE *out, const char *name, const struct measurement *end, const char *after)
{
    fprintf(out,
            "  \"%s\": {\"elapsed_s\": %.9f, \"cpu_s\": %.6f, \"sent_bytes\": %" PRIu64
            ", \"received_bytes\": %" PRIu64 ", ",
            name, (double)end->elapsed_ns / NS_PER_S, (double)end->cpu_ns / NS_PER_S,
            end->sent_bytes, end->received_bytes);
    write_link(out, &end->link);
    fprintf(out, "}%s\n", after);
}

void report_write(FILE *out, const struct job *job, struct outcome *outcome)
{
    uint64_t messages =
        job->seconds > 0 ? outcome->server.received_bytes / job->size_bytes : job->messages;

    fprintf(out,
            "{\n  \"protocol\": \"%s\",\n  \"test\": \"%s\",\n  \"waiting\": \"%s\",\n"
            "  \"size_bytes\": %" PRIu64 ",\n  \"messages\": %" PRIu64
            ",\n  \"warmup_messages\": %" PRIu64 ",\n  \"seconds\": %" PRIu64
            ",\n  \"content_checked\": true,\n",
            job_protocol_names[job->protocol], job_test_names[job->test],
            job_waiting_names[job->waiting], job->size_bytes, messages, job->warmup_messages,
            job->seconds);
    if (job->test == JOB_LATENCY)
        write_latency(out, job, outcome);
    else
        write_bandwidth(out, job, outcome);
    write_end(out, "client", &outcome->client, ",");
    write_end(out, "server", &outcome->server, "");
    fprintf(out, "}\n");
}
