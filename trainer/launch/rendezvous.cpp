// SPDX-License-Identifier: Apache-2.0
#include "trainer/launch/rendezvous.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "lib/base/error.h"
#include "lib/base/process.h"
#include "lib/base/tree.h"

namespace tessera::trainer {

namespace fs = std::filesystem;

namespace {

std::string json_of(const Rendezvous& rendezvous) {
  nlohmann::ordered_json json;
  json["tessera_rendezvous"] = 1;
  json["job"] = rendezvous.job;
  json["token"] = wire::to_hex(rendezvous.token);
  json["addresses"] = nlohmann::ordered_json::array();
  for (const Address& address : rendezvous.addresses) json["addresses"].push_back(to_text(address));
  return json.dump() + "\n";
}

// Parses what json_of makes. Error(input) if it is something else.
Rendezvous parse(const std::string& text, const std::string& name) {
  const Value value = parse_json(text, name);
  Fields fields(value, "a rendezvous");
  require_schema(fields.required("tessera_rendezvous"), 1);
  Rendezvous rendezvous{.job = as_text(fields.required("job"))};
  const Value& token = fields.required("token");
  const auto bytes = wire::token_of(as_text(token));
  if (!bytes) bad_value(token, "is no token");
  rendezvous.token = *bytes;
  const Value& addresses = fields.required("addresses");
  for (const std::string& item : as_texts(addresses)) {
    const auto address = parse_address(item);
    if (!address) bad_value(addresses, fmt::format("'{}' is no address", item));
    rendezvous.addresses.push_back(*address);
  }
  fields.finish();
  return rendezvous;
}

void write_private(const fs::path& path, const std::string& text) {
  // The name contains the host, because processes of two nodes may have the same id.
  const fs::path temporary = path.string() + fmt::format(".tmp.{}.{}", host_name(), ::getpid());
  try {
    ::unlink(temporary.c_str());
    const FileDescriptor file(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file) throw_errno(path, "cannot be written", errno);
    write_all(file, text, path);
    if (::fsync(file.get()) != 0) throw_errno(path, "cannot be written", errno);
    if (::rename(temporary.c_str(), path.c_str()) != 0)
      throw_errno(path, "cannot be written", errno);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

}  // namespace

fs::path rendezvous_path(const fs::path& run_dir, int attempt, int restart) {
  return run_dir / fmt::format("rendezvous.{}.{}", attempt, restart);
}

RendezvousFile::RendezvousFile(fs::path path, const Rendezvous& content)
    : path_(std::move(path)), text_(json_of(content)) {
  write_private(path_, text_);
}

RendezvousFile::~RendezvousFile() {
  try {
    if (read_file_if_exists(path_) == text_) ::unlink(path_.c_str());
  } catch (const std::exception& error) {
    // A file that cannot be removed is useless but harmless: the run goes on.
    std::fputs(fmt::format("trainer: {}\n", error.what()).c_str(), stderr);
  }
}

std::optional<Rendezvous> read_rendezvous(const fs::path& path, const std::string& job,
                                          std::string& why) {
  // An NFS client remembers for a while that a name did not exist; opening the folder makes it ask
  // again.
  const FileDescriptor folder(
      ::open(path.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  try {
    const auto text = read_file_if_exists(path);
    if (!text) {
      why = fmt::format("there is no {}", path.string());
      return std::nullopt;
    }
    Rendezvous rendezvous = parse(*text, path.string());
    if (rendezvous.job != job) {
      why = fmt::format("{} is of job '{}', this is '{}'", path.string(), rendezvous.job, job);
      return std::nullopt;
    }
    return rendezvous;
  } catch (const Error& error) {
    // The error must not quote the file: that might be the token.
    why = error.code() == ExitCode::io ? error.what()
                                       : fmt::format("{} is no rendezvous file", path.string());
    return std::nullopt;
  }
}

}  // namespace tessera::trainer
