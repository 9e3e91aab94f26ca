/* One AMQP connection with one session and one link: connecting, handshake, flow control, socket I/O. */
#ifndef CONNECTION_H
#define CONNECTION_H

#include "wire.h"

enum { ERROR_TEXT_SIZE = 256, INPUT_CAPACITY = 1 << 20, SESSION_WINDOW = 65535, FRAME_SIZE = 65536 };

typedef struct Connection Connection;

/* What the link's owner wants to be told. */
typedef void (*FrameHandler)(Connection *connection, const Frame *frame);

typedef struct {
    const char *host, *hostname, *user, *password;
    int port;
    double deadline; /* monotonic seconds: nothing waits longer */
} Peer;

struct Connection {
    const Peer *peer;
    int descriptor, number, is_closed;
    char error[ERROR_TEXT_SIZE];

    uint8_t *input;
    size_t input_begin, input_end;
    Buffer output;

    int has_mechanisms, sasl_code, has_opened, has_begun, has_attached;
    uint32_t peer_frame_size;

    uint32_t next_outgoing, peer_window; /* session: transfers we sent, and may still send */
    uint32_t next_incoming;              /* session: transfers we got */
    uint32_t delivery_count, credit_limit; /* link: may send while delivery_count < credit_limit */
    uint32_t handle;                       /* link: session receivers take two in turn */
    int detach_count;                      /* answers to our own detaches that are still to come */

    void *owner;
    FrameHandler on_transfer, on_disposition;
};

double now(void);

/* Connects (again and again until the deadline, if nobody listens yet) and attaches a link; 0 on success. */
int connection_start(Connection *connection, int is_sender, const char *address, int is_settled);
/* The same without a link: session receivers attach one for each session. */
int connection_open(Connection *connection, int is_sender);
/* Asks for a receiving link on the next session that is free; it is there once `has_attached` is set. */
void connection_ask_for_session(Connection *connection, const char *address);
void connection_leave_session(Connection *connection);
/* Sends what is waiting and handles what has come, waiting for it up to `wait_ms`; 1 if something came. */
int connection_pump(Connection *connection, int wait_ms);
int connection_can_send(const Connection *connection);
void connection_grant(Connection *connection, uint32_t received, uint32_t credit);
/* A settled disposition with the outcome accepted, for the deliveries first..last that we received. */
void connection_accept(Connection *connection, uint32_t first, uint32_t last);
void connection_heartbeat(Connection *connection);
void connection_finish(Connection *connection);

#endif
