// SPDX-License-Identifier: Apache-2.0
#include "lib/cluster/slurm/records.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

namespace tessera::cluster {

namespace {

// A job of this name that was there long before the hand-over is another one: of a folder that was
// thrown away. Clocks differ, so that the last minutes do not tell.
bool is_older(const SlurmRecord& record, const OpenJob& job) {
  constexpr std::int64_t kSlack_s = 600;
  std::tm parts{};
  if (!record.submit_s || ::strptime(job.since_utc.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) == nullptr)
    return false;
  return *record.submit_s + kSlack_s < ::timegm(&parts);
}

}  // namespace

std::string array_of(const std::string& id) {
  return id.substr(0, id.find('_'));
}

SlurmRecords::SlurmRecords(std::vector<SlurmRecord> records, const std::string& user) {
  std::erase_if(records, [&](const SlurmRecord& record) { return record.user != user; });
  records_ = std::move(records);
  for (const SlurmRecord& record : records_) {
    by_id_[record.id] = &record;
    by_name_[record.name].push_back(&record);
  }
}

const SlurmRecord* SlurmRecords::find(const std::string& id, const std::string& name) const {
  const auto exact = by_id_.find(id);
  if (exact != by_id_.end()) return exact->second->name == name ? exact->second : nullptr;
  const auto named = by_name_.find(name);
  if (named == by_name_.end() || id.find('_') == std::string::npos) return nullptr;
  for (const SlurmRecord* record : named->second) {
    if (record->id.starts_with(array_of(id) + "_[")) return record;
  }
  return nullptr;
}

std::vector<const SlurmRecord*> SlurmRecords::named(const OpenJob& job) const {
  const auto found = by_name_.find(job.name);
  if (found == by_name_.end()) return {};
  std::vector<const SlurmRecord*> records = found->second;
  std::erase_if(records, [&](const SlurmRecord* record) { return is_older(*record, job); });
  if (records.empty()) return {};
  const auto first = std::ranges::min_element(records, {}, [](const SlurmRecord* record) {
    return std::pair(record->submit_s.value_or(0), std::stoll(array_of(record->id)));
  });
  std::vector<const SlurmRecord*> all;
  for (const SlurmRecord* record : records) {
    if (array_of(record->id) == array_of((*first)->id)) all.push_back(record);
  }
  return all;
}

std::string sacct_search_from(std::span<const OpenJob> jobs) {
  constexpr std::time_t kSlack_s = 3600;
  constexpr std::time_t kWithoutTime_s = 30 * 86400;
  std::time_t oldest = std::time(nullptr);
  for (const OpenJob& job : jobs) {
    std::tm parts{};
    const bool is_time = ::strptime(job.since_utc.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) != nullptr;
    oldest = std::min(oldest, is_time ? ::timegm(&parts) : std::time(nullptr) - kWithoutTime_s);
  }
  oldest -= kSlack_s;
  std::tm parts{};
  ::gmtime_r(&oldest, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  return text.data();
}

}  // namespace tessera::cluster
