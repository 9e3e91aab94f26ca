/* The little of AMQP 1.0's encoding that a load client needs: frames out of fields, and fields out of frames. */
#ifndef WIRE_H
#define WIRE_H

#include <stddef.h>
#include <stdint.h>

enum { FRAME_AMQP = 0, FRAME_SASL = 1 };

enum {
    OPEN = 0x10, BEGIN = 0x11, ATTACH = 0x12, FLOW = 0x13, TRANSFER = 0x14, DISPOSITION = 0x15,
    DETACH = 0x16, END = 0x17, CLOSE = 0x18,
    SASL_MECHANISMS = 0x40, SASL_INIT = 0x41, SASL_OUTCOME = 0x44,
    ACCEPTED = 0x24, SOURCE = 0x28, TARGET = 0x29,
};

/* Bytes waiting to be sent: data[begin..end). */
typedef struct {
    uint8_t *data;
    size_t begin, end, capacity;
} Buffer;

void put_u8(Buffer *buffer, uint8_t value);
void put_u32(Buffer *buffer, uint32_t value);
void put_bytes(Buffer *buffer, const void *bytes, size_t size);
void put_null(Buffer *buffer);
void put_bool(Buffer *buffer, int value);
void put_ubyte(Buffer *buffer, uint8_t value);
void put_uint(Buffer *buffer, uint32_t value);
void put_string(Buffer *buffer, const char *text);
void put_symbol(Buffer *buffer, const char *text);
void put_binary(Buffer *buffer, const void *bytes, uint8_t size);

/* Where a frame began, to fill in its sizes when it is complete. Offsets are relative to `begin`. */
typedef struct {
    size_t frame, list;
} FrameMark;

FrameMark frame_begin(Buffer *buffer, uint8_t type, uint8_t performative, uint32_t field_count);
void frame_end(Buffer *buffer, FrameMark mark);

typedef enum { ABSENT, NUMBER, BYTES, DESCRIBED } Kind;

/* A decoded field. DESCRIBED keeps the descriptor's code in `number`. */
typedef struct {
    Kind kind;
    uint64_t number;
    const uint8_t *bytes;
    size_t size;
} Field;

enum { MAX_FIELDS = 12 };

typedef struct {
    uint64_t code;                 /* which performative */
    int field_count;
    Field fields[MAX_FIELDS];
    const uint8_t *payload;        /* what follows the performative */
    size_t payload_size;
    const uint8_t *list, *list_end;
} Frame;

/* Decodes the frame of `size` bytes at `bytes`; 0 if it is empty or not understood. */
int read_frame(const uint8_t *bytes, size_t size, Frame *frame);
uint32_t number_of(const Frame *frame, int field, uint32_t otherwise);

#endif
