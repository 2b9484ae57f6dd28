/* SPDX-License-Identifier: MIT */
/* The bit primitives, for every value of the byte and every bit. */
#include "check.h"

#include <cpuslab/lock.h>

int main(void)
{
	for (unsigned value = 0; value < 256; value++) {
		for (unsigned bit = 0; bit < 8; bit++) {
			uint8_t mask = (uint8_t)(1u << bit), byte;
			bool set = value & mask;

			byte = (uint8_t)value;
			CHECK(cpuslab_test_and_set_bit_lock(bit, &byte) == set && byte == (value | mask));
			byte = (uint8_t)value;
			CHECK(cpuslab_test_and_set_bit(bit, &byte) == set && byte == (value | mask));
			byte = (uint8_t)value;
			CHECK(cpuslab_test_and_clear_bit(bit, &byte) == set && byte == (value & ~mask));
			byte = (uint8_t)value;
			CHECK(cpuslab_test_bit(bit, &byte) == set &&
			      cpuslab_test_bit_acquire(bit, &byte) == set);
			cpuslab_set_bit(bit, &byte);
			CHECK(byte == (value | mask));
			cpuslab_clear_bit(bit, &byte);
			CHECK(byte == (value & ~mask));
			byte = (uint8_t)value;
			cpuslab_clear_bit_unlock(bit, &byte);
			CHECK(byte == (value & ~mask));
			if (bit < 7) {
				byte = (uint8_t)value;
				CHECK(cpuslab_clear_bit_unlock_is_negative_byte(bit, &byte) ==
					      (value >= 128) &&
				      byte == (value & ~mask));
			}
		}
		for (unsigned mask = 0; mask < 128; mask++) {
			uint8_t byte = (uint8_t)value;
			CHECK(cpuslab_xor_unlock_is_negative_byte((uint8_t)mask, &byte) == (value >= 128) &&
			      byte == (value ^ mask));
		}
	}
	/* The sizes are part of the contract. */
	CHECK(sizeof(struct cpuslab_pagelock) == 1 && sizeof(struct cpuslab_spinlock) == 4);
	CHECK(sizeof(struct cpuslab_mcs) == sizeof(void *));
	return 0;
}
