// SPDX-License-Identifier: Apache-2.0
// What squeue or sacct said of this user's jobs, to be looked up by id and by name.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "lib/cluster/slurm/text.h"

namespace tessera::cluster {

// "18231_4" -> "18231"
std::string array_of(const std::string& id);

// Pointers stay valid as long as it lives, moved or not.
class SlurmRecords {
 public:
  SlurmRecords() = default;
  // Those of other users are passed over.
  SlurmRecords(std::vector<SlurmRecord> records, const std::string& user);
  SlurmRecords(const SlurmRecords&) = delete;
  SlurmRecords& operator=(const SlurmRecords&) = delete;
  SlurmRecords(SlurmRecords&&) = default;
  SlurmRecords& operator=(SlurmRecords&&) = default;

  // The job of that id if it has that name; elements that still stand together count too. Else
  // nullptr.
  const SlurmRecord* find(const std::string& id, const std::string& name) const;

  // All of the first of its name that may be the job: a script that a person started again has the
  // name too.
  std::vector<const SlurmRecord*> named(const OpenJob& job) const;

 private:
  std::vector<SlurmRecord> records_;
  std::map<std::string, const SlurmRecord*> by_id_;
  std::map<std::string, std::vector<const SlurmRecord*>> by_name_;  // in the order they came in
};

// What sacct searches from, to find all of them: an hour before the oldest, for clocks differ.
// "2026-11-29T12:41:11"
std::string sacct_search_from(std::span<const OpenJob> jobs);

}  // namespace tessera::cluster
