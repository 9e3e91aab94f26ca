#define _GNU_SOURCE
#include "connection.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const double HANDSHAKE_SECONDS = 15, CLOSE_SECONDS = 2, CONNECT_PAUSE_SECONDS = 0.005;

double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* The printable part of an error that the peer sent, for people. */
static void keep_error(Connection *connection, const Frame *frame) {
    size_t size = 0;
    for (const uint8_t *at = frame->list; at < frame->list_end && size < ERROR_TEXT_SIZE - 1; at++)
        if (*at >= ' ' && *at <= '~') connection->error[size++] = (char)*at;
    connection->error[size] = 0;
}

static void on_flow(Connection *connection, const Frame *frame) {
    uint32_t window = number_of(frame, 0, 0) + number_of(frame, 1, 0) - connection->next_outgoing;
    connection->peer_window = (int32_t)window < 0 ? 0 : window;
    if (frame->field_count > 6 && frame->fields[4].kind == NUMBER)
        connection->credit_limit = number_of(frame, 5, 0) + number_of(frame, 6, 0);
}

static void on_frame(Connection *connection, const Frame *frame) {
    switch (frame->code) {
    case SASL_MECHANISMS: connection->has_mechanisms = 1; break;
    case SASL_OUTCOME: connection->sasl_code = (int)number_of(frame, 0, 1); break;
    case OPEN:
        connection->has_opened = 1;
        connection->peer_frame_size = number_of(frame, 2, UINT32_MAX);
        break;
    case BEGIN:
        connection->has_begun = 1;
        connection->peer_window = number_of(frame, 2, 0);
        break;
    case ATTACH: connection->has_attached = 1; break;
    case FLOW: on_flow(connection, frame); break;
    case TRANSFER:
        connection->next_incoming++;
        if (connection->on_transfer) connection->on_transfer(connection, frame);
        break;
    case DISPOSITION:
        if (connection->on_disposition) connection->on_disposition(connection, frame);
        break;
    case DETACH:
        if (connection->detach_count > 0) {
            connection->detach_count--;
            break;
        }
        /* fall through */
    case END: case CLOSE:
        keep_error(connection, frame);
        connection->is_closed = 1;
        break;
    }
}

/* Whether bytes are still waiting because the socket takes no more. */
static int flush_output(Connection *connection) {
    Buffer *output = &connection->output;
    while (output->begin < output->end) {
        ssize_t size = send(connection->descriptor, output->data + output->begin, output->end - output->begin, MSG_NOSIGNAL);
        if (size < 0) {
            if (errno != EAGAIN) connection->is_closed = 1;
            return errno == EAGAIN;
        }
        output->begin += (size_t)size;
    }
    return 0;
}

static void handle_input(Connection *connection) {
    while (connection->input_end - connection->input_begin >= 8) {
        uint8_t *at = connection->input + connection->input_begin;
        if (!memcmp(at, "AMQP", 4)) { /* a protocol header */
            connection->input_begin += 8;
            continue;
        }
        uint32_t size;
        memcpy(&size, at, 4);
        size = ntohl(size);
        if (size < 8 || size > FRAME_SIZE) {
            snprintf(connection->error, ERROR_TEXT_SIZE, "frame of %u bytes", size);
            connection->is_closed = 1;
            return;
        }
        if (connection->input_end - connection->input_begin < size) return;
        Frame frame;
        if (read_frame(at, size, &frame)) on_frame(connection, &frame);
        connection->input_begin += size;
    }
}

static void receive_input(Connection *connection) {
    size_t waiting = connection->input_end - connection->input_begin;
    if (!waiting || connection->input_end > INPUT_CAPACITY / 2) {
        memmove(connection->input, connection->input + connection->input_begin, waiting);
        connection->input_begin = 0;
        connection->input_end = waiting;
    }
    ssize_t size = recv(connection->descriptor, connection->input + connection->input_end,
                        INPUT_CAPACITY - connection->input_end, 0);
    if (size <= 0) {
        if (size == 0 || errno != EAGAIN) connection->is_closed = 1;
        return;
    }
    connection->input_end += (size_t)size;
    handle_input(connection);
}

int connection_pump(Connection *connection, int wait_ms) {
    int is_blocked = flush_output(connection);
    struct pollfd poll_for = {connection->descriptor, (short)(POLLIN | (is_blocked ? POLLOUT : 0)), 0};
    if (poll(&poll_for, 1, wait_ms) <= 0) return 0;
    if (poll_for.revents & POLLOUT) flush_output(connection);
    if (poll_for.revents & (POLLIN | POLLHUP | POLLERR)) receive_input(connection);
    return 1;
}

static int wait_for(Connection *connection, const int *reached, const char *what) {
    double deadline = now() + HANDSHAKE_SECONDS;
    if (deadline > connection->peer->deadline) deadline = connection->peer->deadline;
    while (!*reached && !connection->is_closed && now() < deadline) connection_pump(connection, 100);
    if (*reached) return 0;
    fprintf(stderr, "no %s from the peer. %s\n", what, connection->error);
    return -1;
}

static int connect_socket(Connection *connection) {
    const Peer *peer = connection->peer;
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
    char port[16];
    snprintf(port, sizeof port, "%d", peer->port);
    if (getaddrinfo(peer->host, port, &hints, &found)) {
        fprintf(stderr, "cannot resolve %s\n", peer->host);
        return -1;
    }
    int failed;
    for (;;) {
        connection->descriptor = socket(AF_INET, SOCK_STREAM, 0);
        failed = connect(connection->descriptor, found->ai_addr, found->ai_addrlen);
        if (!failed || errno != ECONNREFUSED || now() > peer->deadline) break;
        close(connection->descriptor); /* nobody listens yet: the broker may be starting */
        usleep((useconds_t)(CONNECT_PAUSE_SECONDS * 1e6));
    }
    freeaddrinfo(found);
    if (failed) {
        perror("connect");
        return -1;
    }
    int on = 1;
    setsockopt(connection->descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fcntl(connection->descriptor, F_SETFL, O_NONBLOCK);
}

static int authenticate(Connection *connection) {
    Buffer *output = &connection->output;
    const Peer *peer = connection->peer;
    put_bytes(output, "AMQP\x03\x01\x00\x00", 8);
    if (wait_for(connection, &connection->has_mechanisms, "SASL mechanisms")) return -1;
    FrameMark mark = frame_begin(output, FRAME_SASL, SASL_INIT, 2);
    if (peer->user) {
        char response[256];
        int size = snprintf(response, sizeof response, "%c%s%c%s", 0, peer->user, 0, peer->password ? peer->password : "");
        put_symbol(output, "PLAIN");
        put_binary(output, response, (uint8_t)size);
    } else {
        put_symbol(output, "ANONYMOUS");
        put_binary(output, "anonymous", 9);
    }
    frame_end(output, mark);
    connection->sasl_code = -1;
    int is_known = 0;
    double deadline = now() + HANDSHAKE_SECONDS;
    while (!is_known && !connection->is_closed && now() < deadline) {
        connection_pump(connection, 100);
        is_known = connection->sasl_code >= 0;
    }
    if (connection->sasl_code) fprintf(stderr, "refused by SASL (code %d)\n", connection->sasl_code);
    return connection->sasl_code;
}

static int open_session(Connection *connection, const char *container) {
    Buffer *output = &connection->output;
    const Peer *peer = connection->peer;
    put_bytes(output, "AMQP\x00\x01\x00\x00", 8);
    FrameMark mark = frame_begin(output, FRAME_AMQP, OPEN, 3);
    put_string(output, container);
    put_string(output, peer->hostname ? peer->hostname : peer->host);
    put_uint(output, FRAME_SIZE);
    frame_end(output, mark);
    if (wait_for(connection, &connection->has_opened, "open")) return -1;
    mark = frame_begin(output, FRAME_AMQP, BEGIN, 4);
    put_null(output);
    put_uint(output, 0);
    put_uint(output, SESSION_WINDOW);
    put_uint(output, SESSION_WINDOW);
    frame_end(output, mark);
    return wait_for(connection, &connection->has_begun, "begin");
}

/* A source or target: a described list whose only field is the address. */
static void put_terminus(Buffer *output, uint8_t code, const char *address) {
    size_t size = strlen(address);
    const uint8_t head[] = {0x00, 0x53, code, 0xc0, (uint8_t)(size + 3), 1};
    put_bytes(output, head, sizeof head);
    put_string(output, address);
}

static int attach(Connection *connection, int is_sender, const char *name, const char *address, int is_settled) {
    Buffer *output = &connection->output;
    FrameMark mark = frame_begin(output, FRAME_AMQP, ATTACH, is_sender ? 10 : 7);
    put_string(output, name);
    put_uint(output, 0);         /* handle */
    put_bool(output, !is_sender); /* role: true is receiver */
    put_ubyte(output, is_settled ? 1 : 0);
    put_ubyte(output, 0);
    put_terminus(output, SOURCE, is_sender ? name : address);
    put_terminus(output, TARGET, is_sender ? address : name);
    if (is_sender) {
        put_null(output);
        put_null(output);
        put_uint(output, 0); /* initial-delivery-count */
    }
    frame_end(output, mark);
    return wait_for(connection, &connection->has_attached, "attach");
}

enum { NAME_SIZE = 64 };

static void name_link(const Connection *connection, int is_sender, char *name) {
    snprintf(name, NAME_SIZE, "amqpload-%d-%s-%d", getpid(), is_sender ? "sender" : "receiver", connection->number);
}

int connection_open(Connection *connection, int is_sender) {
    char name[NAME_SIZE];
    name_link(connection, is_sender, name);
    connection->input = malloc(INPUT_CAPACITY);
    if (!connection->input) abort();
    return connect_socket(connection) || authenticate(connection) || open_session(connection, name) ? -1 : 0;
}

int connection_start(Connection *connection, int is_sender, const char *address, int is_settled) {
    char name[NAME_SIZE];
    name_link(connection, is_sender, name);
    return connection_open(connection, is_sender) || attach(connection, is_sender, name, address, is_settled) ? -1 : 0;
}

/* A source whose filter asks for the next session that is free: {com.microsoft:session-filter: null}. */
static void put_session_source(Buffer *output, const char *address) {
    static const char FILTER[] = "com.microsoft:session-filter";
    uint8_t name_size = sizeof FILTER - 1, address_size = (uint8_t)strlen(address);
    const uint8_t head[] = {0x00, 0x53, SOURCE, 0xc0, (uint8_t)(1 + 2 + address_size + 6 + 3 + 2 + name_size + 1), 8};
    const uint8_t map[] = {0xc1, (uint8_t)(1 + 2 + name_size + 1), 2};
    put_bytes(output, head, sizeof head);
    put_string(output, address);
    for (int i = 0; i < 6; i++) put_null(output);
    put_bytes(output, map, sizeof map);
    put_symbol(output, FILTER);
    put_null(output);
}

void connection_ask_for_session(Connection *connection, const char *address) {
    Buffer *output = &connection->output;
    char name[NAME_SIZE];
    snprintf(name, sizeof name, "amqpload-%d-%d-%u", getpid(), connection->number, connection->handle);
    connection->has_attached = 0;
    FrameMark mark = frame_begin(output, FRAME_AMQP, ATTACH, 7);
    put_string(output, name);
    put_uint(output, connection->handle);
    put_bool(output, 1);
    put_ubyte(output, 0);
    put_ubyte(output, 1);
    put_session_source(output, address);
    put_terminus(output, TARGET, name);
    frame_end(output, mark);
}

static void put_detach(Connection *connection) {
    FrameMark mark = frame_begin(&connection->output, FRAME_AMQP, DETACH, 2);
    put_uint(&connection->output, connection->handle);
    put_bool(&connection->output, 1);
    frame_end(&connection->output, mark);
}

void connection_leave_session(Connection *connection) {
    put_detach(connection);
    connection->detach_count++;
    connection->handle ^= 1;
}

int connection_can_send(const Connection *connection) {
    return (int32_t)(connection->credit_limit - connection->delivery_count) > 0 && connection->peer_window > 0;
}

void connection_grant(Connection *connection, uint32_t received, uint32_t credit) {
    Buffer *output = &connection->output;
    FrameMark mark = frame_begin(output, FRAME_AMQP, FLOW, 7);
    put_uint(output, connection->next_incoming);
    put_uint(output, SESSION_WINDOW);
    put_uint(output, connection->next_outgoing);
    put_uint(output, SESSION_WINDOW);
    put_uint(output, connection->handle);
    put_uint(output, received);
    put_uint(output, credit);
    frame_end(output, mark);
}

void connection_accept(Connection *connection, uint32_t first, uint32_t last) {
    uint8_t frame[] = {0, 0, 0, 30, 2, 0, 0, 0, 0x00, 0x53, DISPOSITION, 0xc0, 17, 5, 0x41,
                       0x70, 0, 0, 0, 0, 0x70, 0, 0, 0, 0, 0x41, 0x00, 0x53, ACCEPTED, 0x45};
    first = htonl(first);
    last = htonl(last);
    memcpy(frame + 16, &first, 4);
    memcpy(frame + 21, &last, 4);
    put_bytes(&connection->output, frame, sizeof frame);
}

void connection_heartbeat(Connection *connection) { put_bytes(&connection->output, "\0\0\0\x08\x02\0\0\0", 8); }

void connection_finish(Connection *connection) {
    if (!connection->is_closed) {
        char error[ERROR_TEXT_SIZE];
        memcpy(error, connection->error, sizeof error);
        if (connection->has_attached) put_detach(connection);
        connection->detach_count = 1;
        frame_end(&connection->output, frame_begin(&connection->output, FRAME_AMQP, CLOSE, 0));
        double deadline = now() + CLOSE_SECONDS;
        while (!connection->is_closed && now() < deadline) connection_pump(connection, 100);
        memcpy(connection->error, error, sizeof error); /* what the peer answered to our own goodbye is no error */
    }
    close(connection->descriptor);
    free(connection->input);
    free(connection->output.data);
}
