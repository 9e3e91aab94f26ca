/* Sends unsettled messages, with at most `window` of them unanswered, and counts what was accepted. */
#include "load.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGES_PER_ROUND = 256, OUTPUT_LIMIT = 1 << 19 };
static const double HEARTBEAT_SECONDS = 2;

/* One transfer frame, encoded once; only the ids in it change from message to message. */
typedef struct {
    uint8_t *frame;
    size_t size, delivery_id, delivery_tag, message_id, session_id;
} Template;

static size_t append(Template *template, const uint8_t *bytes, size_t size) {
    memcpy(template->frame + template->size, bytes, size);
    template->size += size;
    return template->size;
}

static Template make_template(void) {
    size_t size = (size_t)options.size;
    Template template = {.frame = calloc(1, size + 256), .delivery_id = 16, .delivery_tag = 22};
    if (!template.frame) abort();
    uint8_t transfer[] = {0, 0, 0, 0, 2, 0, 0, 0, 0x00, 0x53, TRANSFER, 0xc0, 16, 6, 0x43, 0x70, 0, 0, 0, 0,
                          0xa0, 4, 0, 0, 0, 0, 0x43, options.is_settled ? 0x41 : 0x42, 0x42};
    uint8_t header[] = {0x00, 0x53, 0x70, 0xc0, 2, 1, options.is_durable ? 0x41 : 0x42};
    size_t session_size = options.sessions ? 9 + 2 + SESSION_ID_SIZE : 0;
    uint8_t properties[] = {0x00, 0x53, 0x73, 0xc0, (uint8_t)(MESSAGE_ID_SIZE + 3 + session_size),
                            options.sessions ? 11 : 1, 0xa1, MESSAGE_ID_SIZE};
    uint8_t session[] = {0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0xa1, SESSION_ID_SIZE};
    uint8_t data[] = {0x00, 0x53, 0x75, 0xb0, (uint8_t)(size >> 24), (uint8_t)(size >> 16), (uint8_t)(size >> 8), (uint8_t)size};
    append(&template, transfer, sizeof transfer);
    append(&template, header, sizeof header);
    template.message_id = append(&template, properties, sizeof properties);
    template.size += MESSAGE_ID_SIZE;
    if (options.sessions) {
        template.session_id = append(&template, session, sizeof session);
        template.size += SESSION_ID_SIZE;
    }
    append(&template, data, sizeof data);
    for (size_t i = 0; i < size; i++) template.frame[template.size + i] = (uint8_t)('a' + i % 26);
    template.size += size;
    uint32_t frame_size = htonl((uint32_t)template.size);
    memcpy(template.frame, &frame_size, 4);
    return template;
}

static void write_message_id(uint8_t *at, int sender, long number) {
    memcpy(at, "msg-axx-", 8);
    at[4] = (uint8_t)('a' + sender % 26);
    for (int i = MESSAGE_ID_SIZE - 1; i >= MESSAGE_ID_SIZE - MESSAGE_ID_DIGITS; i--, number /= 10)
        at[i] = (uint8_t)('0' + number % 10);
}

static void write_session_id(uint8_t *at, long number) {
    for (int i = SESSION_ID_SIZE - 1; i >= 0; i--, number /= 10) at[i] = (uint8_t)('0' + number % 10);
}

static void answered(Worker *worker, uint32_t delivery_id, int is_accepted, double at) {
    uint32_t slot = delivery_id % worker->ring_size;
    if (!worker->is_waiting[slot]) return;
    worker->is_waiting[slot] = 0;
    worker->ended_at = at;
    if (!is_accepted) {
        worker->refused++;
        return;
    }
    worker->accepted++;
    if (worker->latency_count < options.count) worker->latencies[worker->latency_count++] = (float)(at - worker->sent_at[slot]);
}

static void on_disposition(Connection *connection, const Frame *frame) {
    Worker *worker = connection->owner;
    if (number_of(frame, 0, 0) != 1 || frame->field_count < 5) return;
    uint32_t first = number_of(frame, 1, 0), last = number_of(frame, 2, first);
    int is_accepted = frame->fields[4].kind == DESCRIBED && frame->fields[4].number == ACCEPTED;
    if (!is_accepted && !connection->error[0])
        snprintf(connection->error, ERROR_TEXT_SIZE, "outcome 0x%x", (unsigned)frame->fields[4].number);
    double at = now();
    for (uint32_t id = first; id != last + 1; id++) answered(worker, id, is_accepted, at);
}

/* Answers come in any order: an early message may still be waiting for its own when the ring comes round to its slot. */
static int may_send(const Worker *worker) {
    return worker->sent < options.count && worker->sent - worker->accepted - worker->refused < options.window &&
           !worker->is_waiting[(uint32_t)worker->sent % worker->ring_size] && connection_can_send(&worker->connection);
}

static void send_one(Worker *worker, Template *template, double at) {
    Connection *connection = &worker->connection;
    uint32_t id = (uint32_t)worker->sent, big_endian = htonl(id), slot = id % worker->ring_size;
    memcpy(template->frame + template->delivery_id, &big_endian, 4);
    memcpy(template->frame + template->delivery_tag, &big_endian, 4);
    write_message_id(template->frame + template->message_id, connection->number, worker->sent);
    if (options.sessions) write_session_id(template->frame + template->session_id, worker->sent % options.sessions);
    put_bytes(&connection->output, template->frame, template->size);
    worker->sent_at[slot] = at;
    worker->is_waiting[slot] = 1;
    worker->sent++;
    connection->next_outgoing++;
    connection->delivery_count++;
    connection->peer_window--;
    if (options.is_settled) answered(worker, id, 1, at);
}

static void send_all(Worker *worker, Template *template) {
    Connection *connection = &worker->connection;
    double last_sent_at = worker->began_at;
    while (worker->accepted + worker->refused < options.count && !connection->is_closed) {
        double at = now();
        if (at > options.peer.deadline) break;
        for (int i = 0; i < MESSAGES_PER_ROUND && may_send(worker); i++) {
            if (connection->output.end - connection->output.begin > OUTPUT_LIMIT) break;
            send_one(worker, template, at);
            last_sent_at = at;
        }
        if (at - last_sent_at > HEARTBEAT_SECONDS) {
            connection_heartbeat(connection);
            last_sent_at = at;
        }
        connection_pump(connection, may_send(worker) ? 0 : 500);
    }
    while (connection->output.begin < connection->output.end && !connection->is_closed && now() < options.peer.deadline)
        connection_pump(connection, 10);
}

void *run_sender(void *argument) {
    Worker *worker = argument;
    Connection *connection = &worker->connection;
    for (worker->ring_size = 1; worker->ring_size < 16u * (uint32_t)options.window;) worker->ring_size *= 2;
    worker->sent_at = calloc(worker->ring_size, sizeof *worker->sent_at);
    worker->is_waiting = calloc(worker->ring_size, 1);
    worker->latencies = malloc(sizeof *worker->latencies * ((size_t)options.count + 1));
    connection->owner = worker;
    connection->on_disposition = on_disposition;
    Template template = make_template();
    worker->has_failed = connection_start(connection, 1, options.address, options.is_settled) != 0;
    if (!worker->has_failed && template.size > connection->peer_frame_size) {
        snprintf(connection->error, ERROR_TEXT_SIZE, "message over the peer's frame size");
        worker->has_failed = 1;
    }
    worker->began_at = now();
    if (!worker->has_failed) {
        send_all(worker, &template);
        connection_finish(connection);
    }
    free(template.frame);
    return NULL;
}
