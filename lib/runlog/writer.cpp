// SPDX-License-Identifier: Apache-2.0
#include "lib/runlog/writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "lib/base/clock.h"
#include "lib/base/crc32.h"
#include "lib/base/error.h"
#include "lib/runlog/keys.h"

namespace tessera::runlog {

namespace {

[[noreturn]] void not_writable(const std::filesystem::path& path, std::string_view cause) {
  throw Error(ExitCode::log_not_writable, path.string(),
              fmt::format("the run log cannot be written: {}", cause));
}

}  // namespace

Writer::Writer(FileDescriptor file, std::filesystem::path path, Origin origin, bool framed)
    : file_(std::move(file)),
      path_(std::move(path)),
      origin_(std::move(origin)),
      framed_(framed),
      start_s_(monotonic_seconds()) {}

Writer Writer::to_folder(const std::filesystem::path& run_dir, Origin origin) {
  constexpr int kMostAttempts = 10000;
  for (; origin.attempt < kMostAttempts; ++origin.attempt) {
    std::filesystem::path path =
        run_dir / log_file_name(origin.attempt, origin.restart, origin.rank);
    FileDescriptor file(
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
    if (file) return {std::move(file), std::move(path), std::move(origin), false};
    if (errno != EEXIST) not_writable(path, std::generic_category().message(errno));
  }
  not_writable(run_dir, fmt::format("{} attempts are there already", kMostAttempts));
}

Writer Writer::to_stdout(Origin origin) {
  return {FileDescriptor(::dup(STDOUT_FILENO)), "stdout", std::move(origin), true};
}

void Writer::write(Kind kind, const Json& fields) {
  Json record;
  record[keys::schema] = kSchema;
  record[keys::t] = to_text(kind);
  if (kind == Kind::header || kind == Kind::footer) {
    record[keys::project] = origin_.project;
    record[keys::run] = origin_.run;
  }
  record[keys::id] = origin_.id;
  record[keys::rep] = origin_.repeat;
  record[keys::try_] = origin_.attempt;
  record[keys::restart] = origin_.restart;
  record[keys::rank] = origin_.rank;
  record[keys::n] = n_;
  if (kind == Kind::header || kind == Kind::footer) record[keys::utc] = utc_now();
  record[keys::mono_s] = monotonic_seconds() - start_s_;
  record.update(fields);

  const std::string sealed = seal(record.dump(-1, ' ', false, Json::error_handler_t::replace));
  const std::string line = framed_ ? fmt::format("\n{}\n", sealed) : fmt::format("{}\n", sealed);
  if (line.size() > kMaxRecordBytes) {
    throw Error(ExitCode::internal, path_.string(),
                fmt::format("a {} record of {} bytes exceeds {}", to_text(kind), line.size(),
                            kMaxRecordBytes));
  }
  // A record is one write. Where the kernel takes a part only, as on a disk that is filling up, the
  // next one says why.
  for (std::string_view rest = line; !rest.empty();) {
    const ssize_t wrote = ::write(file_.get(), rest.data(), rest.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) not_writable(path_, std::generic_category().message(errno));
    rest.remove_prefix(static_cast<std::size_t>(wrote));
  }
  ++n_;
  absorb(facts_, record);
}

void Writer::end(const Footer& footer) {
  for (const auto& [kind, fields] : last_records(footer, facts_)) write(kind, fields);
}

}  // namespace tessera::runlog
