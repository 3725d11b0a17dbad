// What the files that stand for NVIDIA's libraries share: exported names, and the error of a call.
#pragma once
#include <driver_types.h>

#include "knobs.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace fake {

/// Keep an error for cudaGetLastError, and return it.
cudaError_t result(int error);

}  // namespace fake

/// Fail here where the scenario says so.
#define SCRIPTED                                                \
    if (int scripted = fake::scripted_failure(__func__)) {      \
        return fake::result(scripted);                          \
    }
