/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What two shm interfaces say over their Unix socket: packets of 128 bytes, little-endian.
 *
 *    0  u32  magic           all versions agree on these 16 bytes,
 *    4  u16  version         and on REFUSE
 *    6  u16  type
 *    8  u32  count of descriptors that come with it
 *   12  u32  0
 *   16  ...  by type; what is not used is 0
 *
 *   HELLO    connector to acceptor, with the memory of the connection
 *   WELCOME  the answer: the connection is up
 *   REFUSE   the other answer: an errno and why, in words
 *   REGION   memory that the receiver may map, with its memfd
 *   GONE     a region was released
 *   NUDGE    a doorbell for a peer of another user, who shares no doorbell page with us
 */
#pragma once

#include "causeway/lnet.h"

#include <stdint.h>

#define SHM_WIRE_MAGIC    0x77687363u /* "cshw" */
#define SHM_WIRE_VERSION  1u
#define SHM_WIRE_BYTES    128u
#define SHM_WIRE_FDS_MAX  4u
#define SHM_WIRE_TEXT_MAX 96u

enum shm_wire_type {
    SHM_WIRE_HELLO = 1,
    SHM_WIRE_WELCOME = 2,
    SHM_WIRE_REFUSE = 3,
    SHM_WIRE_REGION = 4,
    SHM_WIRE_GONE = 5,
    SHM_WIRE_NUDGE = 6,
};

/* HELLO and WELCOME. */
struct shm_hello {
    struct lnet_process from;
    struct lnet_process to;
    uint64_t incarnation;
    uint64_t ring_bytes;    /* one direction */
    uint64_t probe_address; /* where probe_value lies in the sender's memory */
    uint64_t probe_value;
    uint32_t eager_bytes_max;
    uint32_t slot; /* the bit to set in the sender's doorbell page */
};

struct shm_refuse {
    int32_t error; /* a positive errno */
    char text[SHM_WIRE_TEXT_MAX];
};

struct shm_region_info {
    uint32_t id; /* slot and generation */
    uint64_t length_bytes;
};

struct shm_wire {
    enum shm_wire_type type;
    uint32_t fd_count;
    union {
        struct shm_hello hello;
        struct shm_refuse refuse;
        struct shm_region_info region; /* REGION; GONE has the id alone */
    } u;
};

/* The number of descriptors that a packet of @type carries. */
uint32_t shm_wire_fd_count(enum shm_wire_type type);

/* Writes @wire at @bytes; its fd_count is implied by the type. */
void shm_wire_encode(const struct shm_wire *wire, uint8_t bytes[SHM_WIRE_BYTES]);

/*
 * Reads a packet of @length bytes that came with @fd_count descriptors.
 * Errors: -EPROTO malformed; -EPROTONOSUPPORT well-formed, of another version.
 */
int shm_wire_decode(const uint8_t *bytes, uint64_t length, uint32_t fd_count,
                    struct shm_wire *wire_out);

/* Sends a packet without waiting. Returns 0 or what sendmsg() said. */
int shm_wire_send(int fd, const struct shm_wire *wire, const int *fds);

/*
 * Receives a packet without waiting: 1 and *wire_out and @fds_out, which the caller closes; 0 at
 * the end of the stream; -EAGAIN nothing there; -EPROTO, -EPROTONOSUPPORT; -EMFILE a packet is lost
 * because our table of descriptors is full; or what recvmsg() said.
 */
int shm_wire_recv(int fd, struct shm_wire *wire_out, int fds_out[SHM_WIRE_FDS_MAX]);
