// SPDX-License-Identifier: Apache-2.0
// Normal form, identity and names of a point.
#pragma once

#include <string>

#include "lib/point/point.h"

namespace tessera::sweep {

// Two points that run the same computation have one normal form (docs/formats.md, "Normal form"):
//   one device               -> sharding NO_SHARD
//   microbatch > device batch-> microbatch = device batch
//   hybrid group = devices   -> FULL_SHARD
//   not HYBRID_SHARD         -> no hybrid group
//   fp32                     -> mixed precision DEFAULT
//   one device, PURE         -> mixed precision DEFAULT
//   a GPU                    -> threads 0
//   no gelu_tanh, or an ffn that is no multiple of 8
//                            -> not fused_gelu: products have nothing to fuse
//   a CPU                    -> not exact_steps, not deterministic: it has no other way
Point normalized(Point point);

// First 12 hexadecimal digits of the SHA-256 of canonical_json(point). `point` must be normalized.
std::string point_id(const Point& point);

// "" if `project` is legal, else what is wrong: [a-z]([a-z0-9-]{0,14}[a-z0-9])? without "--".
std::string project_fault(std::string_view project);

// "<model>-s<seq>-<gpus>g" in lower case, each run of other characters one '-', cut so that every
// run and job name of the project stays within 46 characters. The same for every repeat and
// attempt.
std::string slug(std::string_view label, const Point& point, std::string_view project);

// "<project>--<slug>-<id>", "-rJ" from the second repeat (repeat counts from 1).
std::string run_name(std::string_view project, std::string_view slug, std::string_view id,
                     int repeat);

// Run name, "-aK" from the second attempt (attempt counts from 1).
std::string job_name(std::string_view run, int attempt);

}  // namespace tessera::sweep
