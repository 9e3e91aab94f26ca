package tandembus;

/** The kinds of queues and topics on which a test runs. */
enum Kind {
    PLAIN,
    SESSIONS,
    PARTITIONED
}
