// Counts what this program takes from the heap.
#pragma once

namespace tessera::trainer::test {

// Calls of operator new so far, by any thread.
long allocations();

}  // namespace tessera::trainer::test
