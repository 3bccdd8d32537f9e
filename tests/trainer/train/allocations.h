// Counts what is taken from the heap by this program.
#pragma once

namespace tessera::trainer::test {

// Calls of malloc, calloc, realloc, aligned_alloc and operator new so far, by any thread, without
// OpenBLAS's own: a table of jobs of 512 KiB for each product on more than one thread, taken and
// given back within it. Under a sanitizer, which has a heap of its own, of operator new alone.
long allocations();

}  // namespace tessera::trainer::test
