/* Receives and accepts messages: at once, or after holding a number of them locked, in order or at random. */
#define _GNU_SOURCE
#include "load.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_long total_received, duplicate_count, wrong_count;
static uint8_t *seen; /* one byte per sender and number */

int all_received(void) {
    long wanted = options.count * (strcmp(options.mode, "both") ? 1 : options.senders);
    return atomic_load(&total_received) >= wanted;
}

void verify_start(void) {
    if (options.verify) seen = calloc(26, (size_t)options.count);
}

void verify_report(long *duplicates, long *wrong) {
    *duplicates = duplicate_count;
    *wrong = wrong_count;
}

/* Which message this is, as an index into `seen`; -1 if its id is none of ours. */
static long identify(const Frame *frame) {
    const uint8_t *id = memmem(frame->payload, frame->payload_size, "msg-", 4);
    if (!id || frame->payload + frame->payload_size - id <= MESSAGE_ID_SIZE) return -1;
    long number = 0, sender = id[4] - 'a';
    for (int i = MESSAGE_ID_SIZE - MESSAGE_ID_DIGITS; i < MESSAGE_ID_SIZE; i++) number = number * 10 + id[i] - '0';
    return sender < 0 || sender >= 26 || number < 0 || number >= options.count ? -1 : sender * options.count + number;
}

static void verify(const Frame *frame) {
    const uint8_t *end = frame->payload + frame->payload_size;
    long index = identify(frame);
    int is_whole = frame->payload_size > (size_t)options.size && end[-options.size] == 'a' &&
                   end[-1] == 'a' + (options.size - 1) % 26;
    if (index < 0 || !is_whole) atomic_fetch_add(&wrong_count, 1);
    else if (__atomic_exchange_n(&seen[index], 1, __ATOMIC_RELAXED)) atomic_fetch_add(&duplicate_count, 1);
}

/* Takes one of the held deliveries: the oldest, or any. */
static uint32_t take_held(Worker *worker) {
    long capacity = options.hold + 1, chosen = worker->held_begin;
    if (!strcmp(options.settle_order, "random")) {
        chosen = (worker->held_begin + rand_r(&worker->seed) % worker->held_count) % capacity;
        uint32_t other = worker->held[worker->held_begin];
        worker->held[worker->held_begin] = worker->held[chosen];
        worker->held[chosen] = other;
    }
    uint32_t id = worker->held[worker->held_begin];
    worker->held_begin = (worker->held_begin + 1) % capacity;
    worker->held_count--;
    return id;
}

static void settle_held(Worker *worker, long keep) {
    while (worker->held_count > keep) {
        uint32_t id = take_held(worker);
        connection_accept(&worker->connection, id, id);
        worker->settled++;
    }
}

static void on_transfer(Connection *connection, const Frame *frame) {
    Worker *worker = connection->owner;
    worker->current = number_of(frame, 1, worker->current);
    if (number_of(frame, 5, 0)) return; /* more frames of this delivery follow */
    if (options.verify) verify(frame);
    if (!worker->received++) worker->began_at = now();
    if (number_of(frame, 4, 0)) return; /* settled by the sender */
    worker->held[(worker->held_begin + worker->held_count++) % (options.hold + 1)] = worker->current;
    settle_held(worker, options.hold);
}

static void receive_all(Worker *worker) {
    Connection *connection = &worker->connection;
    double last_received_at = now();
    connection_grant(connection, 0, (uint32_t)options.credit);
    while (!all_received() && !connection->is_closed) {
        long before = worker->received;
        int has_come = connection_pump(connection, 200);
        double at = now();
        if (worker->received != before) {
            atomic_fetch_add(&total_received, worker->received - before);
            last_received_at = worker->ended_at = at;
        }
        long used = worker->received - (long)worker->granted_at;
        if (used >= (options.credit + 1) / 2 || (!has_come && used)) {
            connection_grant(connection, (uint32_t)worker->received, (uint32_t)options.credit);
            worker->granted_at = (uint32_t)worker->received;
        }
        if (!has_come) connection_heartbeat(connection);
        if (at > options.peer.deadline || at - last_received_at > options.idle_seconds) break;
    }
    settle_held(worker, 0);
}

/* One session: its messages, each accepted as it comes. Returns 0 when there is nothing more to do. */
static int receive_session(Worker *worker) {
    Connection *connection = &worker->connection;
    long before = worker->received, wanted = before + options.per_session;
    connection_ask_for_session(connection, options.address);
    connection_grant(connection, 0, (uint32_t)options.per_session); /* along with the attach: no round trip more */
    while (!connection->has_attached)
        if (all_received() || connection->is_closed || now() > options.peer.deadline) return 0;
        else connection_pump(connection, 50);
    while (worker->received < wanted && !connection->is_closed && now() < options.peer.deadline)
        connection_pump(connection, 200);
    atomic_fetch_add(&total_received, worker->received - before);
    worker->ended_at = now();
    connection_leave_session(connection);
    return worker->received == wanted;
}

static void *run_session_receiver(Worker *worker) {
    worker->has_failed = connection_open(&worker->connection, 0) != 0;
    if (worker->has_failed) return NULL;
    while (receive_session(worker)) continue;
    worker->connection.has_attached = 0;
    connection_finish(&worker->connection);
    return NULL;
}

void *run_receiver(void *argument) {
    Worker *worker = argument;
    Connection *connection = &worker->connection;
    worker->held = malloc(sizeof *worker->held * ((size_t)options.hold + 1));
    worker->seed = (unsigned)connection->number + 1;
    connection->owner = worker;
    connection->on_transfer = on_transfer;
    if (options.sessions) return run_session_receiver(worker);
    worker->has_failed = connection_start(connection, 0, options.address, 0) != 0;
    if (worker->has_failed) return NULL;
    receive_all(worker);
    connection_finish(connection);
    return NULL;
}
