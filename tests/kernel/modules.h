/* SPDX-License-Identifier: MIT */
/*
 * Driven by tests/kmem_modules.c: code that uses an allocator the way kernel code does, written for these
 * tests alone.  It has the kernel's interfaces and idioms, and none of its text.
 */
#ifndef TESTS_KERNEL_MODULES_H
#define TESTS_KERNEL_MODULES_H

#include <linux/types.h>

/* An ordered map, modified under a lock with preallocated nodes. */
struct range_tree;
int range_tree_init(void);
void range_tree_exit(void);
struct range_tree *range_tree_create(gfp_t gfp);
void range_tree_destroy(struct range_tree *tree);
int range_tree_store(struct range_tree *tree, unsigned long index, void *entry, gfp_t gfp);
void *range_tree_load(struct range_tree *tree, unsigned long index);

/* Names in a table; unused ones stay until the table is shrunk. */
struct name;
int names_init(void);
void names_exit(void);
struct name *name_get(const char *text);
void name_put(struct name *name);
const char *name_text(const struct name *name);
unsigned long names_shrink(unsigned long count);

/* Packets, allocated and freed in bulk, with shared payloads. */
struct packet;
int packets_init(void);
void packets_exit(void);
void packets_flush(void);
struct packet *packet_new(unsigned int length, gfp_t gfp);
struct packet *packet_hold(struct packet *packet);
struct packet *packet_share(struct packet *packet, gfp_t gfp);
void packet_drop(struct packet *packet);
u8 *packet_bytes(struct packet *packet);
unsigned int packet_room(const struct packet *packet);

/* Transfers of pages from memory pools, which always make progress. */
struct transfer;
int transfers_init(void);
void transfers_exit(void);
struct transfer *transfer_new(unsigned int segments, gfp_t gfp);
int transfer_fill(struct transfer *transfer);
void transfer_visit(struct transfer *transfer, void (*visit)(struct page *page));
void transfer_put(struct transfer *transfer);

/* Sessions with numbers and references, which undo partial work at the end of a scope. */
struct session;
int sessions_init(void);
void sessions_exit(void);
struct session *session_open(const void *secret, size_t length);
unsigned int session_number(const struct session *session);
struct session *session_find(unsigned int number);
void session_put(struct session *session);
int session_close(unsigned int number);
bool session_knows(struct session *session, const void *secret, size_t length);
int session_note(struct session *session, const char *text);
size_t session_notes(struct session *session);

/* Requests that are served even when memory is refused. */
struct request;
int requests_init(unsigned int reserve);
void requests_exit(void);
void requests_press(bool pressed);
long requests_refused(void);
int requests_reserve(unsigned int reserve);
struct request *request_new(u64 sector);
u8 *request_buffer(struct request *request, size_t *bytes);
void request_queue(struct request *request);
unsigned int requests_serve(u64 *sectors);

/* Frames, whose heads are copied in part, and whose bytes are shared. */
struct frame;
int frames_init(void);
void frames_exit(void);
struct frame *frame_new(unsigned int size, gfp_t gfp);
unsigned int frame_room(const struct frame *frame);
void frame_mark(struct frame *frame, u32 mark, u16 protocol);
bool frame_marked(const struct frame *frame, u32 mark, u16 protocol);
u8 *frame_append(struct frame *frame, unsigned int bytes);
struct frame *frame_clone(const struct frame *frame, gfp_t gfp);
int frame_unshare(struct frame *frame, unsigned int more, gfp_t gfp);
u8 *frame_bytes(struct frame *frame, unsigned int *length);
void frame_free(struct frame *frame);

#endif
