// SPDX-License-Identifier: Apache-2.0
// Counts this program's heap allocations.
#pragma once

namespace tessera::trainer::test {

// Returns the calls of malloc, calloc, realloc, aligned_alloc and operator new so far, by any
// thread. OpenBLAS's own do not count: for each GEMM on more than one thread it takes a table of
// jobs of 512 KiB and gives it back. Under a sanitizer, which has its own heap, only operator new
// is counted.
long allocations();

}  // namespace tessera::trainer::test
