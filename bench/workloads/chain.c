/* SPDX-License-Identifier: MIT */
#include "workload.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/*
 * Three threads in a row.  The first allocates messages, the second frees each and allocates its answer, the
 * third frees that: no thread ever frees an object that it allocated.  Queues pass batches, as any fast queue
 * does, and block when full or empty.
 */
enum { STAGES = 3, BATCH = 32, SLOTS = 64 };

struct message {
	size_t size;
	uint64_t sum;
	unsigned char bytes[];
};

struct batch {
	unsigned count;
	struct message *messages[BATCH];
};

struct queue {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct batch *slots[SLOTS];
	unsigned first, used;
};

struct chain {
	unsigned batches;
	struct queue queues[STAGES - 1];
};

static void queue_put(struct queue *queue, struct batch *batch)
{
	pthread_mutex_lock(&queue->lock);
	while (queue->used == SLOTS)
		pthread_cond_wait(&queue->changed, &queue->lock);
	queue->slots[(queue->first + queue->used++) % SLOTS] = batch;
	pthread_cond_signal(&queue->changed);
	pthread_mutex_unlock(&queue->lock);
}

static struct batch *queue_take(struct queue *queue)
{
	pthread_mutex_lock(&queue->lock);
	while (queue->used == 0)
		pthread_cond_wait(&queue->changed, &queue->lock);
	struct batch *batch = queue->slots[queue->first];
	queue->first = (queue->first + 1) % SLOTS;
	queue->used--;
	pthread_cond_signal(&queue->changed);
	pthread_mutex_unlock(&queue->lock);
	return batch;
}

static struct message *message_new(size_t size, unsigned char fill)
{
	struct message *message = heap_allocate(sizeof(*message) + size);
	message->size = size;
	message->sum = fill;
	memset(message->bytes, fill, size);
	return message;
}

static uint64_t stage(unsigned index, void *context)
{
	struct chain *chain = context;
	uint64_t random = 6 + index, checksum = 0;
	for (unsigned i = 0; i < chain->batches; i++) {
		struct batch *batch;
		if (index == 0) {
			batch = heap_allocate(sizeof(*batch));
			for (batch->count = 0; batch->count < BATCH; batch->count++)
				batch->messages[batch->count] =
					message_new(random_size(&random, 32, 6), (unsigned char)i);
		} else {
			batch = queue_take(&chain->queues[index - 1]);
		}
		for (unsigned m = 0; index > 0 && m < batch->count; m++) {
			struct message *old = batch->messages[m];
			checksum += old->sum + old->bytes[old->size / 2];
			if (index < STAGES - 1)
				batch->messages[m] =
					message_new(old->size / 2 + 8, (unsigned char)(old->sum + 1));
			heap_release(old);
		}
		if (index < STAGES - 1)
			queue_put(&chain->queues[index], batch);
		else
			heap_release(batch);
	}
	return checksum;
}

uint64_t workload_chain(unsigned scale)
{
	struct chain chain = {.batches = 1500 * scale};
	for (unsigned i = 0; i < STAGES - 1; i++) {
		pthread_mutex_init(&chain.queues[i].lock, NULL);
		pthread_cond_init(&chain.queues[i].changed, NULL);
	}
	return threads_run(STAGES, stage, &chain);
}
