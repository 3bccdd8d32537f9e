// SPDX-License-Identifier: Apache-2.0
// A store for ranks that are threads of one process.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>

#include "lib/base/error.h"
#include "trainer/launch/store.h"

namespace tessera::trainer::test {

// State that the ranks of a meeting share.
struct Meeting {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> values;
  std::optional<Lost> lost;
};

class MeetingStore final : public Store {
 public:
  MeetingStore(std::shared_ptr<Meeting> meeting, int rank)
      : meeting_(std::move(meeting)), rank_(rank) {}

  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(meeting_->mutex);
    if (value.size() > 65536 || !meeting_->values.emplace(key, value).second)
      throw Error(ExitCode::internal, "store", key);
    meeting_->changed.notify_all();
  }
  std::string get(const std::string& key, std::chrono::milliseconds limit) override {
    std::unique_lock lock(meeting_->mutex);
    const auto until = std::chrono::system_clock::now() + limit;
    const auto there = [&] { return meeting_->values.contains(key) || meeting_->lost; };
    meeting_->changed.wait_until(lock, until, there);
    if (meeting_->values.contains(key)) return meeting_->values.at(key);
    if (meeting_->lost)
      throw Error(ExitCode::comm_error, "store", "a rank is lost: " + meeting_->lost->reason);
    throw Error(ExitCode::comm_error, "store", key + " has not come");
  }
  void leave(const std::string& reason) override {
    const std::lock_guard lock(meeting_->mutex);
    if (!meeting_->lost) meeting_->lost = {rank_, reason};
    meeting_->changed.notify_all();
  }
  std::optional<Lost> lost() override {
    const std::lock_guard lock(meeting_->mutex);
    return meeting_->lost;
  }

 private:
  const std::shared_ptr<Meeting> meeting_;
  const int rank_;
};

}  // namespace tessera::trainer::test
