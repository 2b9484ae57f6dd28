/* SPDX-License-Identifier: MIT */
/* Before seed 001: a list, a field that names its slab, and a guard over both. */
#define VARIANT_NAME guard
#include "names.h"

#define LINKED_FRONT  "guard_front.h"
#define VARIANT_TITLE "field, guard"
#include "guard_front.h"

#include "variant.h"
