// SPDX-License-Identifier: Apache-2.0
#include "trainer/selftest/selftest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "trainer/device/gpu.h"
#include "trainer/selftest/checks.h"

namespace tessera::trainer {

bool selftest(const SelftestOptions& options, std::FILE* out) {
  using namespace selftest_checks;
  std::vector<SelftestPart> parts = options.parts;
  if (parts.empty()) {
    parts = options.gpu ? std::vector{SelftestPart::attention, SelftestPart::operations,
                                      SelftestPart::training, SelftestPart::bits}
                        : std::vector{SelftestPart::operations, SelftestPart::bits};
  }
  Report report(out);
  for (const SelftestPart part : parts) {
    const double begin = monotonic_seconds();
    const Counts before = report.counts();
    switch (part) {
      case SelftestPart::attention:
        check_attention(options, report);
        break;
      case SelftestPart::operations:
        check_operations(options, report);
        break;
      case SelftestPart::training:
        check_training(options, report);
        break;
      case SelftestPart::bits:
        check_bits(options, report);
        break;
    }
    const Counts after = report.counts();
    report.say(fmt::format("{}: {} of {} checks hold ({:.1f} s)\n", to_text(part),
                           after.held - before.held, after.all - before.all,
                           monotonic_seconds() - begin));
  }
  return report.counts().held == report.counts().all;
}

}  // namespace tessera::trainer
