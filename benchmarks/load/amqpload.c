/* amqpload: a small AMQP 1.0 load client without an AMQP library.
 *
 * It encodes one transfer frame and then only changes its ids, so it costs about a microsecond per message and the
 * broker under test is the limit. Every message is one frame; no TLS. Every loop ends at --max-seconds.
 *
 *   amqpload --mode send|recv|both|idle --port P --address A [--host H] [--user U --password P]
 *
 *   send   --count messages of --size bytes per sender, at most --window unanswered; only accepted ones count
 *   recv   --count messages in all, with --credit; each is accepted by a disposition of its own, at once or, with
 *          --hold N, when N deliveries are locked: the oldest of them, or with --settle-order random any
 *   both   --senders and --receivers at once, each with its own connection and thread
 *   --sessions N: message i belongs to session i modulo N; receivers take the next free session, --per-session messages
 *          from it, and then the next
 *   idle   opens --connections with a link each, prints a line, and keeps them until its input ends
 *   --verify 1 checks that each message comes once and whole (only if the queue was empty before)
 *
 * Prints one line of JSON: counts, rates per second, latencies in milliseconds from send to accept.
 */
#include "load.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Options options = {
    .mode = "send", .address = "q", .settle_order = "in-order", .size = 1024, .window = 500, .credit = 500,
    .is_durable = 1, .senders = 1, .receivers = 1, .connections = 1, .count = 10000, .max_seconds = 60,
    .idle_seconds = 5, .peer = {.host = "127.0.0.1", .port = 5672},
};

static const struct {
    const char *name;
    const char **text;
    int *number;
    long *count;
    double *seconds;
} OPTIONS[] = {
    {"--mode", .text = &options.mode},
    {"--host", .text = &options.peer.host},
    {"--port", .number = &options.peer.port},
    {"--hostname", .text = &options.peer.hostname},
    {"--user", .text = &options.peer.user},
    {"--password", .text = &options.peer.password},
    {"--address", .text = &options.address},
    {"--size", .number = &options.size},
    {"--window", .number = &options.window},
    {"--credit", .number = &options.credit},
    {"--hold", .number = &options.hold},
    {"--settle-order", .text = &options.settle_order},
    {"--durable", .number = &options.is_durable},
    {"--settled", .number = &options.is_settled},
    {"--verify", .number = &options.verify},
    {"--senders", .number = &options.senders},
    {"--receivers", .number = &options.receivers},
    {"--connections", .number = &options.connections},
    {"--sessions", .number = &options.sessions},
    {"--per-session", .number = &options.per_session},
    {"--count", .count = &options.count},
    {"--max-seconds", .seconds = &options.max_seconds},
    {"--idle-seconds", .seconds = &options.idle_seconds},
};

enum { OPTION_COUNT = sizeof OPTIONS / sizeof *OPTIONS, MAX_SIZE = 60000 };

static int set_option(const char *name, const char *value) {
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (strcmp(name, OPTIONS[i].name)) continue;
        if (OPTIONS[i].text) *OPTIONS[i].text = value;
        if (OPTIONS[i].number) *OPTIONS[i].number = atoi(value);
        if (OPTIONS[i].count) *OPTIONS[i].count = atol(value);
        if (OPTIONS[i].seconds) *OPTIONS[i].seconds = atof(value);
        return 0;
    }
    fprintf(stderr, "unknown option %s\n", name);
    return -1;
}

static int read_options(int count, char **arguments) {
    for (int i = 1; i < count; i += 2) {
        if (i + 1 == count) {
            fprintf(stderr, "%s needs a value\n", arguments[i]);
            return -1;
        }
        if (set_option(arguments[i], arguments[i + 1])) return -1;
    }
    if (options.size < 1 || options.size > MAX_SIZE) {
        fprintf(stderr, "--size must be 1 to %d: one frame per message\n", MAX_SIZE);
        return -1;
    }
    options.peer.deadline = now() + options.max_seconds;
    return 0;
}

static int by_value(const void *left, const void *right) {
    float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

static void print_latencies(const Worker *workers, int count) {
    long total = 0, at = 0;
    for (int i = 0; i < count; i++) total += workers[i].latency_count;
    if (!total) return;
    float *all = malloc(sizeof *all * (size_t)total);
    if (!all) abort();
    for (int i = 0; i < count; i++) {
        memcpy(all + at, workers[i].latencies, sizeof *all * (size_t)workers[i].latency_count);
        at += workers[i].latency_count;
    }
    qsort(all, (size_t)total, sizeof *all, by_value);
    printf(", \"p50_ms\": %.4f, \"p99_ms\": %.4f, \"max_ms\": %.4f", all[total / 2] * 1e3, all[total * 99 / 100] * 1e3,
           all[total - 1] * 1e3);
    free(all);
}

/* The time from the first worker's beginning to the last one's end, never 0. */
static double seconds_of(const Worker *workers, int count) {
    double began_at = 0, ended_at = 0;
    for (int i = 0; i < count; i++) {
        if (workers[i].began_at && (!began_at || workers[i].began_at < began_at)) began_at = workers[i].began_at;
        if (workers[i].ended_at > ended_at) ended_at = workers[i].ended_at;
    }
    return ended_at > began_at ? ended_at - began_at : 1e-9;
}

static int complain(const Worker *workers, int count) {
    int failures = 0;
    for (int i = 0; i < count; i++) {
        failures += workers[i].has_failed;
        if (workers[i].connection.error[0]) fprintf(stderr, "connection %d: %s\n", i, workers[i].connection.error);
    }
    return failures;
}

static int report(const Worker *senders, int sender_count, const Worker *receivers, int receiver_count) {
    long accepted = 0, refused = 0, received = 0, duplicates = 0, wrong = 0;
    for (int i = 0; i < sender_count; i++) accepted += senders[i].accepted, refused += senders[i].refused;
    for (int i = 0; i < receiver_count; i++) received += receivers[i].received;
    verify_report(&duplicates, &wrong);
    printf("{\"accepted\": %ld, \"refused\": %ld, \"received\": %ld", accepted, refused, received);
    if (sender_count) printf(", \"send_rate\": %.0f", (double)accepted / seconds_of(senders, sender_count));
    if (receiver_count) printf(", \"receive_rate\": %.0f", (double)received / seconds_of(receivers, receiver_count));
    if (sender_count) print_latencies(senders, sender_count);
    if (options.verify) printf(", \"duplicates\": %ld, \"wrong\": %ld", duplicates, wrong);
    printf("}\n");
    int is_short = (sender_count && accepted < options.count * sender_count) || (receiver_count && !all_received());
    return is_short || complain(senders, sender_count) || complain(receivers, receiver_count);
}

static int run_load(void) {
    int sender_count = strcmp(options.mode, "recv") ? options.senders : 0;
    int receiver_count = strcmp(options.mode, "send") ? options.receivers : 0;
    int count = sender_count + receiver_count;
    Worker *workers = calloc((size_t)count, sizeof *workers);
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    if (!workers || !threads) abort();
    verify_start();
    for (int i = 0; i < count; i++) {
        workers[i].connection.peer = &options.peer;
        workers[i].connection.number = i < sender_count ? i : i - sender_count;
        pthread_create(&threads[i], NULL, i < sender_count ? run_sender : run_receiver, &workers[i]);
    }
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    int is_bad = report(workers, sender_count, workers + sender_count, receiver_count);
    free(workers);
    free(threads);
    return is_bad;
}

static int run_idle(void) {
    Connection *connections = calloc((size_t)options.connections, sizeof *connections);
    if (!connections) abort();
    for (int i = 0; i < options.connections; i++) {
        connections[i].peer = &options.peer;
        connections[i].number = i;
        if (connection_start(&connections[i], 1, options.address, 0)) return 1;
    }
    printf("{\"connections\": %d}\n", options.connections);
    fflush(stdout);
    char unused;
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    while (now() < options.peer.deadline) {
        if (poll(&input, 1, 1000) > 0 && read(STDIN_FILENO, &unused, 1) <= 0) break;
    }
    return 0; /* the sockets close with the process */
}

int main(int count, char **arguments) {
    signal(SIGPIPE, SIG_IGN);
    if (read_options(count, arguments)) return 2;
    return strcmp(options.mode, "idle") ? run_load() : run_idle();
}
