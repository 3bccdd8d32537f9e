// SPDX-License-Identifier: Apache-2.0
#include "trainer/device/cuda/gemm/gemm_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "lib/base/crc32.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/process.h"
#include "lib/base/tree.h"

namespace tessera::trainer::cuda {

namespace {

namespace fs = std::filesystem;

constexpr int kSchema = 1;
// About 2 MB, hundreds of models. The oldest choices are dropped first.
constexpr std::size_t kMostLines = 4096;
constexpr std::chrono::seconds kLockPatience{5};

std::optional<cublasLtMatmulAlgo_t> from_hex(std::string_view text) {
  cublasLtMatmulAlgo_t algorithm{};
  if (text.size() != 16 * std::size(algorithm.data)) return std::nullopt;
  for (std::uint64_t& word : algorithm.data) {
    const std::string_view digits = text.substr(0, 16);
    const char* end = digits.data() + digits.size();
    const auto [at, fault] = std::from_chars(digits.begin(), end, word, 16);
    if (fault != std::errc() || at != end) return std::nullopt;
    text.remove_prefix(16);
  }
  return algorithm;
}

// A lock on the file, held until destruction. If another process holds it for long, the file
// system's locks hang.
class Lock {
 public:
  explicit Lock(const fs::path& path)
      : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    if (!file_) throw_errno(path, "cannot be opened", errno);
    const auto end = std::chrono::steady_clock::now() + kLockPatience;
    while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) throw_errno(path, "cannot be locked", errno);
      if (std::chrono::steady_clock::now() >= end)
        throw Error(ExitCode::io, path.string(), "is locked by another for long");
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

 private:
  FileDescriptor file_;
};

}  // namespace

std::string to_hex(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text;
  for (const std::uint64_t word : algorithm.data) text += fmt::format("{:016x}", word);
  return text;
}

fs::path default_gemm_cache() {
  constexpr const char* kName = "tessera/gemm-v1.jsonl";
  if (const std::string folder = environment_variable("XDG_CACHE_HOME"); !folder.empty())
    return fs::path(folder) / kName;
  if (const std::string home = environment_variable("HOME"); !home.empty())
    return fs::path(home) / ".cache" / kName;
  return {};
}

std::string GemmCache::format(const Line& line) {
  nlohmann::ordered_json json;
  json["gemm"] = kSchema;
  json["gpu"] = line.machine.gpu;
  json["cublaslt"] = line.machine.cublaslt;
  json["driver"] = line.machine.driver;
  json["workspace_bytes"] = line.machine.workspace_bytes;
  json["shape"] = line.shape;
  json["algorithm"] = to_hex(line.entry.algorithm);
  json["us"] = std::round(line.entry.us * 1000) / 1000;
  json["is_first"] = line.entry.is_first;
  return seal(json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

// Throws Error if `text` is no line of this version.
GemmCache::Line GemmCache::parse(const std::string& text) {
  if (!seal_holds(text)) throw Error(ExitCode::input, "gemm", "the seal does not hold");
  const Value value = parse_json(text, "gemm");
  Fields fields(value, "a choice");
  require_schema(fields.required("gemm"), kSchema);
  Line line;
  line.machine = {.gpu = as_text(fields.required("gpu")),
                  .cublaslt = as_text(fields.required("cublaslt")),
                  .driver = as_text(fields.required("driver")),
                  .workspace_bytes = as_integer(fields.required("workspace_bytes"), 0)};
  line.shape = as_text(fields.required("shape"));
  const Value& hex = fields.required("algorithm");
  const auto algorithm = from_hex(as_text(hex));
  if (!algorithm) bad_value(hex, "not 128 hexadecimal digits");
  line.entry = {.algorithm = *algorithm,
                .us = as_number(fields.required("us")),
                .is_first = as_bool(fields.required("is_first"))};
  fields.required("crc");
  fields.finish();
  return line;
}

// Damaged lines are counted and skipped: one bad line must not cost the others.
GemmCache::Content GemmCache::read() const {
  Content content;
  const std::string text = read_file_if_exists(path_).value_or("");
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    try {
      content.lines.push_back(parse(text.substr(begin, end - begin)));
    } catch (const Error&) {
      ++content.bad_lines;
    }
    begin = end + 1;
  }
  return content;
}

// Later lines win, so a choice that replaced another one counts.
void GemmCache::take(const Content& content) {
  for (const Line& line : content.lines) {
    if (line.machine == machine_) entries_.insert_or_assign(line.shape, line.entry);
  }
}

GemmCache::GemmCache(fs::path path, GemmMachine machine)
    : path_(std::move(path)), machine_(std::move(machine)) {
  if (path_.empty()) return;
  try {
    const Content content = read();
    take(content);
    if (content.bad_lines == 0) return;
    has_bad_lines_ = true;
    notes_.push_back(
        fmt::format("{}: {} of {} lines are damaged or of another version; they are "
                    "left out and the file is written anew",
                    path_.string(), content.bad_lines, content.bad_lines + content.lines.size()));
  } catch (const Error& error) {
    notes_.push_back(fmt::format("{}; GEMM algorithms are chosen anew", error.what()));
  }
}

const GemmCacheEntry* GemmCache::find(const std::string& shape) const {
  const auto found = entries_.find(shape);
  return found != entries_.end() ? &found->second : nullptr;
}

void GemmCache::reject(const std::string& shape) {
  const auto found = entries_.find(shape);
  if (found == entries_.end()) return;
  rejected_[shape] = to_hex(found->second.algorithm);
  entries_.erase(found);
}

void GemmCache::add(const std::map<std::string, GemmCacheEntry>& entries) {
  for (const auto& [shape, entry] : entries) entries_.insert_or_assign(shape, entry);
  if (path_.empty() || (entries.empty() && !has_bad_lines_)) return;
  try {
    merge(entries);
    has_bad_lines_ = false;
  } catch (const Error& error) {
    notes_.push_back(fmt::format("{}; chosen GEMM algorithms are not kept", error.what()));
  }
}

// Merges under the lock: reads what others have written, drops rejected choices, adds those whose
// shape is still missing, and takes over what the file then says.
void GemmCache::merge(const std::map<std::string, GemmCacheEntry>& entries) {
  if (path_.has_parent_path()) make_directories(path_.parent_path());
  const Lock lock(path_.string() + ".lock");
  Content content = read();
  std::erase_if(content.lines, [&](const Line& line) {
    const auto rejected = rejected_.find(line.shape);
    return line.machine == machine_ && rejected != rejected_.end() &&
           rejected->second == to_hex(line.entry.algorithm);
  });
  std::map<std::string, GemmCacheEntry> missing = entries;
  for (const Line& line : content.lines) {
    if (line.machine == machine_) missing.erase(line.shape);
  }
  for (const auto& [shape, entry] : missing)
    content.lines.push_back({.machine = machine_, .shape = shape, .entry = entry});
  const std::size_t begin =
      content.lines.size() > kMostLines ? content.lines.size() - kMostLines : 0;
  std::string text;
  for (std::size_t i = begin; i < content.lines.size(); ++i)
    text += format(content.lines[i]) + "\n";
  write_file_atomically(path_, text);
  take(content);
}

std::string gemm_table_hash(const GemmMachine& machine,
                            const std::map<std::string, cublasLtMatmulAlgo_t>& in_use) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  const auto add = [&](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
    hash *= 0x100000001B3U;  // as if a zero byte ended each text
  };
  add(machine.gpu);
  add(machine.cublaslt);
  for (const auto& [shape, algorithm] : in_use) {
    add(shape);
    add(to_hex(algorithm));
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace tessera::trainer::cuda
