// SPDX-License-Identifier: Apache-2.0
#include "trainer/train/pace.h"

#include <algorithm>

namespace tessera::trainer {

PaceRules exact_pace(std::int64_t steps, std::int64_t warmup) {
  return {.steps = steps, .warmup = warmup};
}

PaceRules gpu_pace(std::int64_t steps, std::int64_t warmup) {
  return {.steps = steps,
          .warmup = warmup,
          .least_warmup = 3,
          .least_measured = 10,
          .least_warmup_s = 5,
          .least_measured_s = 15,
          .most = 2000};
}

Pace::Pace(const PaceRules& rules) : rules_(rules) {
  const std::int64_t measured =
      std::max(rules_.steps - rules_.warmup, std::max<std::int64_t>(rules_.least_measured, 1));
  rules_.warmup = std::max(rules_.warmup, rules_.least_warmup);
  rules_.steps = rules_.warmup + measured;
  most_ = std::max(rules_.most, rules_.steps);
  // If even the most steps end too soon, warm-up and measured part shrink by the same factor.
  const double seconds = rules_.least_warmup_s + rules_.least_measured_s;
  const double share = seconds > 0 ? rules_.least_warmup_s / seconds : 0;
  latest_warmup_ = std::clamp(static_cast<std::int64_t>(share * static_cast<double>(most_)),
                              rules_.warmup, most_ - measured);
  end_warmup_if_due();
}

bool Pace::is_exact() const {
  return rules_.least_warmup_s <= 0 && rules_.least_measured_s <= 0;
}

void Pace::end_warmup_if_due() {
  if (is_warm() || taken_ < rules_.warmup) return;
  if (seconds_ < rules_.least_warmup_s && taken_ < latest_warmup_) return;
  warmup_ = taken_;
  seconds_ = 0;
}

bool Pace::take(double seconds) {
  const bool was_warmup = !is_warm();
  ++taken_;
  seconds_ += seconds;
  end_warmup_if_due();
  return was_warmup;
}

bool Pace::wants_more(std::int64_t issued) const {
  if (issued < rules_.steps) return true;
  if (is_exact() || issued >= most_) return false;
  if (!is_warm()) return true;
  return issued - warmup_ < rules_.steps - rules_.warmup || seconds_ < rules_.least_measured_s;
}

bool Pace::is_measured(std::int64_t step) const {
  return is_exact() ? step > rules_.warmup : is_warm() && step > warmup_;
}

}  // namespace tessera::trainer
