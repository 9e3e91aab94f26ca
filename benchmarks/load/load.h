/* What all parts of the load client share: the options, and one sender's or receiver's figures. */
#ifndef LOAD_H
#define LOAD_H

#include "connection.h"

typedef struct {
    const char *mode, *address, *settle_order;
    int size, window, credit, hold, is_durable, is_settled, verify;
    int senders, receivers, connections;
    int sessions, per_session; /* 0 sessions: messages belong to none */
    long count;
    double max_seconds, idle_seconds;
    Peer peer;
} Options;

extern Options options;

/* One sender or receiver with its own connection and thread. Times are monotonic seconds. */
typedef struct {
    Connection connection;
    int has_failed;
    double began_at, ended_at;
    /* sender */
    long sent, accepted, refused, latency_count;
    uint32_t ring_size;   /* what is not yet answered, by delivery-id */
    double *sent_at;
    uint8_t *is_waiting;
    float *latencies;
    /* receiver */
    long received, settled;
    uint32_t granted_at;  /* `received` when credit was last given */
    uint32_t current;     /* delivery-id of the delivery whose frames are coming in */
    uint32_t *held;       /* received, not yet settled; a ring for in-order, a bag for random */
    long held_begin, held_count;
    unsigned int seed;
} Worker;

void *run_sender(void *worker);
void *run_receiver(void *worker);

/* Whether all receivers together have what they are here for. */
int all_received(void);
void verify_start(void);
void verify_report(long *duplicates, long *wrong);
/* Message ids look like "msg-axx-0000000000000123": sender 'a', number 123. */
enum { MESSAGE_ID_SIZE = 24, MESSAGE_ID_DIGITS = 16, SESSION_ID_SIZE = 8 };

#endif
