// SPDX-License-Identifier: Apache-2.0
// The rendezvous: the addresses and the token with which a rank finds rank 0. It comes from a file
// in the run's folder, from the variables of `trainer --nproc`, or from those of torchrun.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainer/launch/sockets.h"
#include "trainer/launch/wire.h"

namespace tessera::trainer {

struct Rendezvous {
  std::string job;  // Place::job
  wire::Token token{};
  std::vector<Address> addresses;
};

// <run_dir>/rendezvous.<attempt>.<restart>, one JSON object:
//   {"tessera_rendezvous":1,"job":"18231.0","token":"<32 hex
//   digits>","addresses":["10.0.0.1:4242"]}
std::filesystem::path rendezvous_path(const std::filesystem::path& run_dir, int attempt,
                                      int restart);

// Owns the file. It is written whole with mode 0600, replacing what an earlier start left, and
// removed in the destructor unless it is another's by then. Error(io).
class RendezvousFile {
 public:
  RendezvousFile(std::filesystem::path path, const Rendezvous& content);
  RendezvousFile(const RendezvousFile&) = delete;
  RendezvousFile& operator=(const RendezvousFile&) = delete;
  ~RendezvousFile();

 private:
  std::filesystem::path path_;
  std::string text_;
};

// Reads the file. Nothing, and `why`, if there is none, it belongs to another job, or it cannot be
// read.
std::optional<Rendezvous> read_rendezvous(const std::filesystem::path& path, const std::string& job,
                                          std::string& why);

// The variables by which `trainer --nproc` tells its ranks where they meet. Rank 0 inherits the
// listening socket, so the port never belongs to anyone else.
inline constexpr const char* kStoreVariable = "TESSERA_STORE";  // "127.0.0.1:4242"
inline constexpr const char* kStoreTokenVariable = "TESSERA_STORE_TOKEN";
inline constexpr const char* kStoreSocketVariable = "TESSERA_STORE_FD";  // rank 0 only

}  // namespace tessera::trainer
