// What the devices are: which ones are visible, and what torch asks about them.
#pragma once
#include <driver_types.h>

#include <vector>

namespace fake {

/// Numbers of the devices that CUDA_VISIBLE_DEVICES leaves, in its order; by number or by the beginning of a UUID. As
/// CUDA's documents say, the list ends at the first entry that names no device.
const std::vector<int> &visible();

void describe(cudaDeviceProp *properties, int number);
int attribute(cudaDeviceAttr which);

}  // namespace fake
