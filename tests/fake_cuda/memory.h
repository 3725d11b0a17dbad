// Which memory is the device's, which is page-locked, and how much of either there is.
#pragma once
#include <cstddef>

namespace fake {

enum { PAGE_LOCKED = -1, PAGEABLE = -2 };

/// Number of the device that an address belongs to, or one of the above.
int whose(const void *at);

/// Null where the limit is reached.
void *allocate_device(size_t bytes);
void *allocate_locked(size_t bytes);
bool register_locked(void *at, size_t bytes);

/// False for an address that was not got from the function of the same name.
bool free_device(void *at);
bool free_locked(void *at);
bool unregister_locked(void *at);

}  // namespace fake
