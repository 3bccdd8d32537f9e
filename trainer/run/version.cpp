#include "trainer/run/version.h"

namespace tessera::trainer {

const char* const kVersion = TESSERA_VERSION;
const char* const kCommit = TESSERA_COMMIT;

}  // namespace tessera::trainer
