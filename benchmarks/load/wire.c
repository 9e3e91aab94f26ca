#include "wire.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

static void reserve(Buffer *buffer, size_t more) {
    if (buffer->begin == buffer->end) buffer->begin = buffer->end = 0;
    if (buffer->end + more <= buffer->capacity) return;
    if (buffer->begin) {
        memmove(buffer->data, buffer->data + buffer->begin, buffer->end - buffer->begin);
        buffer->end -= buffer->begin;
        buffer->begin = 0;
    }
    while (buffer->end + more > buffer->capacity) buffer->capacity = buffer->capacity ? buffer->capacity * 2 : 1024;
    buffer->data = realloc(buffer->data, buffer->capacity);
    if (!buffer->data) abort();
}

void put_bytes(Buffer *buffer, const void *bytes, size_t size) {
    reserve(buffer, size);
    memcpy(buffer->data + buffer->end, bytes, size);
    buffer->end += size;
}

void put_u8(Buffer *buffer, uint8_t value) { put_bytes(buffer, &value, 1); }

void put_u32(Buffer *buffer, uint32_t value) {
    value = htonl(value);
    put_bytes(buffer, &value, 4);
}

void put_null(Buffer *buffer) { put_u8(buffer, 0x40); }
void put_bool(Buffer *buffer, int value) { put_u8(buffer, value ? 0x41 : 0x42); }

void put_ubyte(Buffer *buffer, uint8_t value) {
    put_u8(buffer, 0x50);
    put_u8(buffer, value);
}

void put_uint(Buffer *buffer, uint32_t value) {
    put_u8(buffer, 0x70);
    put_u32(buffer, value);
}

static void put_short(Buffer *buffer, uint8_t constructor, const void *bytes, size_t size) {
    put_u8(buffer, constructor);
    put_u8(buffer, (uint8_t)size);
    put_bytes(buffer, bytes, size);
}

void put_string(Buffer *buffer, const char *text) { put_short(buffer, 0xa1, text, strlen(text)); }
void put_symbol(Buffer *buffer, const char *text) { put_short(buffer, 0xa3, text, strlen(text)); }
void put_binary(Buffer *buffer, const void *bytes, uint8_t size) { put_short(buffer, 0xa0, bytes, size); }

FrameMark frame_begin(Buffer *buffer, uint8_t type, uint8_t performative, uint32_t field_count) {
    const uint8_t head[] = {0, 0, 0, 0, 2, type, 0, 0, 0x00, 0x53, performative, 0xd0};
    FrameMark mark = {buffer->end - buffer->begin, 0};
    put_bytes(buffer, head, sizeof head);
    mark.list = buffer->end - buffer->begin;
    put_u32(buffer, 0);
    put_u32(buffer, field_count);
    return mark;
}

static void set_u32(Buffer *buffer, size_t offset, size_t value) {
    uint32_t big_endian = htonl((uint32_t)value);
    memcpy(buffer->data + buffer->begin + offset, &big_endian, 4);
}

void frame_end(Buffer *buffer, FrameMark mark) {
    size_t written = buffer->end - buffer->begin;
    set_u32(buffer, mark.list, written - mark.list - 4);
    set_u32(buffer, mark.frame, written - mark.frame);
}

static uint64_t big_endian(const uint8_t *bytes, int width) {
    uint64_t value = 0;
    for (int i = 0; i < width; i++) value = value << 8 | bytes[i];
    return value;
}

/* How many bytes the value behind constructor `code` takes up: a fixed width, or a width of the size in front of it. */
static int fixed_width(uint8_t code) {
    static const int widths[] = {0, 1, 2, 4, 8, 16};
    return code >> 4 >= 4 && code >> 4 <= 9 ? widths[(code >> 4) - 4] : -1;
}

static int width_of_size(uint8_t code) {
    switch (code >> 4) {
    case 0xa: case 0xc: case 0xe: return 1;
    case 0xb: case 0xd: case 0xf: return 4;
    default: return 0;
    }
}

static const uint8_t *read_field(const uint8_t *at, const uint8_t *end, Field *field);

static const uint8_t *read_described(const uint8_t *at, const uint8_t *end, Field *field) {
    Field descriptor, value;
    at = read_field(at, end, &descriptor);
    if (at) at = read_field(at, end, &value);
    if (at) *field = (Field){DESCRIBED, descriptor.number, value.bytes, value.size};
    return at;
}

static const uint8_t *read_fixed(const uint8_t *at, const uint8_t *end, uint8_t code, int width, Field *field) {
    if (end - at < width) return NULL;
    field->bytes = at;
    field->size = (size_t)width;
    if (code == 0x40) return at;
    field->kind = width > 8 ? BYTES : NUMBER;
    if (field->kind == NUMBER) field->number = width ? big_endian(at, width) : code == 0x41;
    return at + width;
}

/* Reads one value; NULL if it does not end within the bytes that are there. Compound values are not looked into. */
static const uint8_t *read_field(const uint8_t *at, const uint8_t *end, Field *field) {
    *field = (Field){ABSENT, 0, at, 0};
    if (at >= end) return NULL;
    uint8_t code = *at++;
    if (code == 0x00) return read_described(at, end, field);
    if (fixed_width(code) >= 0) return read_fixed(at, end, code, fixed_width(code), field);
    int width = width_of_size(code);
    if (!width || end - at < width) return NULL;
    uint64_t size = big_endian(at, width);
    if ((uint64_t)(end - at - width) < size) return NULL;
    *field = (Field){BYTES, 0, at + width, (size_t)size};
    return at + width + size;
}

/* The fields of the list that `bytes` begins with (constructor included). */
static int read_list(const uint8_t *at, const uint8_t *end, Frame *frame) {
    if (at >= end) return 0;
    uint8_t code = *at++;
    int width = code == 0xc0 ? 1 : code == 0xd0 ? 4 : 0;
    frame->list = frame->list_end = at;
    if (code == 0x45) return 1;
    if (!width || end - at < 2 * width) return 0;
    uint64_t size = big_endian(at, width), count = big_endian(at + width, width);
    if ((uint64_t)(end - at - width) < size) return 0;
    frame->list = at + 2 * width;
    frame->list_end = at + width + size;
    const uint8_t *next = frame->list;
    for (; next && frame->field_count < (int)count && frame->field_count < MAX_FIELDS; frame->field_count++)
        next = read_field(next, frame->list_end, &frame->fields[frame->field_count]);
    return next != NULL;
}

int read_frame(const uint8_t *bytes, size_t size, Frame *frame) {
    frame->field_count = 0;
    size_t offset = bytes[4] * 4u;
    if (offset >= size || bytes[offset] != 0x00) return 0;
    const uint8_t *end = bytes + size;
    Field descriptor;
    const uint8_t *list = read_field(bytes + offset + 1, end, &descriptor);
    if (!list || !read_list(list, end, frame)) return 0;
    frame->code = descriptor.number;
    frame->payload = frame->list_end;
    frame->payload_size = (size_t)(end - frame->list_end);
    return 1;
}

uint32_t number_of(const Frame *frame, int field, uint32_t otherwise) {
    if (field >= frame->field_count || frame->fields[field].kind != NUMBER) return otherwise;
    return (uint32_t)frame->fields[field].number;
}
