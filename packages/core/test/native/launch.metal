#include <metal_stdlib>
#include "../kernels/launch.params.h"
using namespace metal;

// Nine words for each threadgroup, as in the CPU kernel, but without the length of the scratch, which a shader cannot know.
[[host_name("launch_u32")]] kernel void launch(device const uint* absent [[buffer(LAUNCH_ABSENT)]],
                                               device uint* out [[buffer(LAUNCH_OUT)]],
                                               constant LaunchParams& p [[buffer(LAUNCH_PARAMS)]],
                                               threadgroup uint* scratch [[threadgroup(0)]],
                                               uint3 group [[threadgroup_position_in_grid]],
                                               uint3 groups [[threadgroups_per_grid]]) {
  const uint index = group.x + groups.x * (group.y + groups.y * group.z);
  for (uint i = 0; i < 4; ++i) scratch[i] = index;
  uint kept = 0;
  for (uint i = 0; i < 4; ++i) kept += scratch[i] == index ? 4 : 0;
  device uint* words = out + index * 9;
  words[0] = groups.x;
  words[1] = groups.y;
  words[2] = groups.z;
  words[3] = p.u;
  words[4] = as_type<uint>(p.i);
  words[5] = as_type<uint>(p.f);
  words[6] = kept;
  words[7] = 0;
  words[8] = p.present & LAUNCH_HAS_ABSENT ? 0 : 1;
}
