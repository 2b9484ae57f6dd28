/* SPDX-License-Identifier: MIT */
/* One word in a slot of the thread's own. */
#define VARIANT_NAME slot
#include "names.h"

#define LINKED_FRONT  "slot_front.h"
#define VARIANT_TITLE "thread slot"
#include "slot_front.h"

#include "variant.h"
