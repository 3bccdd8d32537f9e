// SPDX-License-Identifier: Apache-2.0
#include "lib/runlog/reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "lib/base/crc32.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/runlog/keys.h"
#include "lib/runlog/record.h"

namespace tessera::runlog {

namespace {

// Splits a stream of chunks into lines, without ever holding more than one line that could be a
// record.
class LineScanner {
 public:
  // `line` gets each line without its line feed (and without the carriage return before it).
  // `too_long` gets the beginning of a line that is longer than any record.
  LineScanner(std::function<void(std::string_view)> line,
              std::function<void(std::string_view)> too_long);

  void feed(std::string_view chunk);
  void finish();  // the last line may lack its line feed

 private:
  void take(std::string_view piece);
  void end_line();

  std::function<void(std::string_view)> line_;
  std::function<void(std::string_view)> too_long_;
  std::string pending_;
  bool overlong_ = false;
};

LineScanner::LineScanner(std::function<void(std::string_view)> line,
                         std::function<void(std::string_view)> too_long)
    : line_(std::move(line)), too_long_(std::move(too_long)) {}

void LineScanner::take(std::string_view piece) {
  const std::size_t room = kMaxRecordBytes - pending_.size();
  overlong_ = overlong_ || piece.size() > room;
  pending_.append(piece.substr(0, room));
}

void LineScanner::end_line() {
  if (overlong_) {
    too_long_(pending_);
  } else {
    std::string_view line = pending_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    line_(line);
  }
  pending_.clear();
  overlong_ = false;
}

void LineScanner::feed(std::string_view chunk) {
  while (!chunk.empty()) {
    const std::size_t end = chunk.find('\n');
    take(chunk.substr(0, end));
    if (end == std::string_view::npos) return;
    end_line();
    chunk.remove_prefix(end + 1);
  }
}

void LineScanner::finish() {
  if (!pending_.empty()) end_line();
}

constexpr std::size_t kEndBytes = 16384;  // of each end of a file that is read in part
constexpr std::size_t kChunkBytes = 1 << 20;
// A loss that is not finite is left out of its record.
constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();

// Members of a record. One that is absent or of another type gives nothing, "", `otherwise` or
// false.
std::optional<std::int64_t> integer(const Json& record, const char* key) {
  const auto found = record.find(key);
  if (found == record.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<std::int64_t>();
}

std::string text(const Json& record, const char* key) {
  const auto found = record.find(key);
  return found != record.end() && found->is_string() ? found->get<std::string>() : std::string();
}

double number(const Json& record, const char* key, double otherwise) {
  const auto found = record.find(key);
  return found != record.end() && found->is_number() ? found->get<double>() : otherwise;
}

bool truth(const Json& record, const char* key) {
  const auto found = record.find(key);
  return found != record.end() && found->is_boolean() && found->get<bool>();
}

// The origin that every record names; nothing if one of its members is missing or impossible.
std::optional<Origin> origin_of(const Json& record) {
  Origin origin;
  origin.id = text(record, keys::id);
  if (origin.id.empty()) return std::nullopt;
  const auto take = [&](const char* key, int low, int& target) {
    const auto value = integer(record, key);
    if (!value || *value < low || *value > std::numeric_limits<int>::max()) return false;
    target = static_cast<int>(*value);
    return true;
  };
  if (!take(keys::rep, 1, origin.repeat) || !take(keys::try_, 1, origin.attempt) ||
      !take(keys::restart, 0, origin.restart) || !take(keys::rank, 0, origin.rank)) {
    return std::nullopt;
  }
  origin.project = text(record, keys::project);
  origin.run = text(record, keys::run);
  return origin;
}

bool same_origin(const Origin& a, const Origin& b) {
  return a.id == b.id && a.repeat == b.repeat && a.attempt == b.attempt && a.restart == b.restart &&
         a.rank == b.rank;
}

// Reads a step record; nothing if its step, tokens or seconds are missing or impossible.
std::optional<StepSample> step_of(const Json& record) {
  const auto step = integer(record, keys::step);
  const auto tokens = integer(record, keys::tokens);
  const double seconds = number(record, keys::seconds, 0);
  if (!step || !tokens || *tokens < 0 || !(seconds > 0)) return std::nullopt;
  return StepSample{.step = *step,
                    .warmup = truth(record, keys::warmup),
                    .seconds = seconds,
                    .tokens = *tokens,
                    .loss = number(record, keys::loss, kNotKnown),
                    .grad_norm = number(record, keys::grad_norm, kNotKnown),
                    .data_wait_s = number(record, keys::data_wait_s, 0),
                    .skipped = truth(record, keys::skipped)};
}

// Reads an event record. Numbers take the place of a text that is not there: "free_bytes 512".
Event event_of(const Json& record) {
  Event event{.kind = text(record, keys::kind), .text = text(record, keys::text)};
  if (event.text.empty()) {
    for (const char* key : {keys::requested_bytes, keys::free_bytes}) {
      if (const auto bytes = integer(record, key)) {
        event.text += fmt::format("{}{} {}", event.text.empty() ? "" : ", ", key, *bytes);
      }
    }
  }
  return event;
}

bool is_known_schema(std::string_view line) {
  const auto schema = record_schema(line);
  return schema && *schema >= kOldestSchema && *schema <= kSchema;
}

// Sorts the records of one file by their origin. Counts the lines that it does not believe. A
// record is one line:
//   {"tessera":2,"t":"step","id":"1f0c9a3b77de","rep":1,"try":1,"restart":0,"rank":0,
//    "n":7,"step":3,"seconds":0.41,...,"crc":"0a1b2c3d"}
class Parser {
 public:
  explicit Parser(std::filesystem::path path) { file_.path = std::move(path); }

  void line(std::string_view text) {
    if (text.empty()) return;
    if (!starts_as_record(text)) {
      ++file_.foreign;
    } else if (!seal_holds(text)) {
      ++file_.damaged;
    } else if (!is_known_schema(text)) {
      file_.newer_schema = true;
    } else {
      sealed(text);
    }
  }

  void too_long(std::string_view beginning) {
    ++(starts_as_record(beginning) ? file_.damaged : file_.foreign);
  }

  // The lines between were not read: what n jumps over is not missing.
  void skip_ahead() {
    file_.whole = false;
    for (State& state : states_) state.skipped = true;
  }

  // A header, and the row and the footer of the same and only origin behind it, as its last
  // records.
  bool has_header_and_footer() const {
    return file_.logs.size() == 1 && file_.logs[0].has_header && file_.logs[0].footer &&
           states_[0].footer_is_last && states_[0].has_row && !file_.newer_schema;
  }

  LogFile take(Depth depth) {
    for (Log& log : file_.logs) {
      if (log.footer && depth == Depth::row) log.steps.clear();
      if (log.origin.run.empty() && log.facts.run) log.origin.run = *log.facts.run;
      if (log.origin.project.empty() && log.facts.project) log.origin.project = *log.facts.project;
    }
    return std::move(file_);
  }

 private:
  // What must be remembered of one log until the file has been read.
  struct State {
    std::int64_t last_n = -1;
    bool skipped = false;
    Facts row;              // of the row records so far
    std::int64_t rows = 0;  // how many they are, none of them missing
    bool has_row = false;   // the footer's
    bool footer_is_last = false;
    std::optional<Json> header;
  };

  // Takes a line whose seal holds: finds the log of its origin, or adds one.
  void sealed(std::string_view text) {
    const Json record = Json::parse(text, nullptr, false);
    const auto origin = record.is_object() ? origin_of(record) : std::nullopt;
    const auto n = record.is_object() ? integer(record, keys::n) : std::nullopt;
    if (!origin || !n || *n < 0) {
      ++file_.damaged;  // sealed, but not by our writer
      return;
    }
    std::size_t at = 0;
    while (at < file_.logs.size() && !same_origin(file_.logs[at].origin, *origin)) ++at;
    if (at == file_.logs.size()) {
      file_.logs.emplace_back().origin = *origin;
      states_.emplace_back();
    }
    take_record(file_.logs[at], states_[at], *origin, *n, record);
  }

  static void take_record(Log& log, State& state, const Origin& origin, std::int64_t n,
                          const Json& record) {
    const auto kind = from_text<Kind>(runlog::text(record, keys::t));
    // A second header that differs means that two runs with one id wrote here.
    if (kind == Kind::header && state.header && *state.header != record) log.clash = true;
    if (log.clash) return;
    // n numbers the records of one writer: a jump means lost records, an old number a repeated one.
    if (n <= state.last_n) {
      ++log.repeated;
      return;
    }
    if (!state.skipped) log.missing += n - state.last_n - 1;
    state.skipped = false;
    state.last_n = n;
    ++log.records;
    state.footer_is_last = false;
    if (!origin.run.empty()) {
      log.origin.run = origin.run;
      log.origin.project = origin.project;
    }
    if (!kind) return;  // a later version's: the schema lets kinds be added
    if (kind == Kind::footer) {
      if (auto footer = parse_footer(record)) {
        log.footer = std::move(footer);
        take_row_of(log, state, record);
        state.footer_is_last = true;
      }
      return;
    }
    if (kind == Kind::row) {
      if (integer(record, keys::part) == state.rows + 1) {
        take_row(state.row, record);
        ++state.rows;
      }
      return;
    }
    if (kind == Kind::header) {
      state.header = record;
      log.has_header = true;
      if (const auto point = record.find(keys::point); point != record.end())
        log.point_json = point->dump();
    }
    if (kind == Kind::event) log.events.push_back(event_of(record));
    if (kind == Kind::step) {
      if (const auto step = step_of(record)) log.steps.push_back(*step);
    }
    // The facts of a footer's row stand: later records add nothing to them.
    if (log.footer) return;
    absorb(log.facts, record);
    log.facts.id = log.origin.id;
    log.facts.rep = log.origin.repeat;
    log.facts.attempt = log.origin.attempt;
    log.facts.restart = log.origin.restart;
  }

  // The row outranks the sum of the records; where a part of it is lost, that sum stays.
  static void take_row_of(Log& log, State& state, const Json& footer) {
    const auto rows = rows_before(footer);
    state.has_row = !rows || *rows == state.rows;
    if (state.has_row) log.facts = rows ? state.row : Facts{};
    take_row(log.facts, footer);
  }

  LogFile file_;
  std::vector<State> states_;  // as file_.logs
};

// Returns a scanner that feeds the parser. The parser must outlive it.
LineScanner scanner_for(Parser& parser) {
  return {[&parser](std::string_view line) { parser.line(line); },
          [&parser](std::string_view beginning) { parser.too_long(beginning); }};
}

// Returns the bytes from `offset` on, fewer at the end of the file. Error(io).
std::string read_at(const FileDescriptor& file, const std::filesystem::path& path,
                    std::int64_t offset, std::size_t bytes) {
  std::string content(bytes, '\0');
  std::size_t have = 0;
  while (have < bytes) {
    const ssize_t got = ::pread(file.get(), content.data() + have, bytes - have,
                                offset + static_cast<std::int64_t>(have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno(path, "cannot be read", errno);
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  content.resize(have);
  return content;
}

// Both ends of a long log of one writer, or nothing if they do not hold its header and footer.
std::optional<LogFile> read_ends(const FileDescriptor& file, const std::filesystem::path& path,
                                 std::int64_t size) {
  Parser parser(path);
  const std::string head = read_at(file, path, 0, kEndBytes);
  const std::size_t head_end = head.rfind('\n');
  LineScanner scanner = scanner_for(parser);
  if (head_end != std::string::npos) scanner.feed(std::string_view(head).substr(0, head_end + 1));
  parser.skip_ahead();
  const std::string tail =
      read_at(file, path, size - static_cast<std::int64_t>(kEndBytes), kEndBytes);
  // The tail begins in the middle of a line.
  const std::size_t tail_start = tail.find('\n');
  if (tail_start == std::string::npos) return std::nullopt;
  scanner.feed(std::string_view(tail).substr(tail_start + 1));
  scanner.finish();
  if (!parser.has_header_and_footer()) return std::nullopt;
  return parser.take(Depth::row);
}

struct OpenLog {
  FileDescriptor file;
  std::int64_t size = 0;
  std::optional<LogFileName> name;  // of a file that one rank wrote
};

// Opens a log for reading. Error(io) if it is no regular file. O_NONBLOCK keeps a pipe from
// blocking.
OpenLog open_log(const std::filesystem::path& path) {
  OpenLog log;
  log.file = FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!log.file) throw_errno(path, "cannot be read", errno);
  struct stat status{};
  if (::fstat(log.file.get(), &status) != 0) throw_errno(path, "cannot be read", errno);
  if (S_ISDIR(status.st_mode)) throw_errno(path, "cannot be read", EISDIR);
  if (!S_ISREG(status.st_mode)) {
    throw Error(ExitCode::io, path.string(), "cannot be read: it is no regular file");
  }
  log.size = status.st_size;
  LogFileName parts;
  if (parse_log_file_name(path.filename().string(), parts)) log.name = parts;
  return log;
}

// Returns how often the text has "t":"header".
std::size_t headers_in(std::string_view text) {
  static const std::string kHeader = fmt::format(R"("{}":"{}")", keys::t, to_text(Kind::header));
  std::size_t count = 0;
  for (std::size_t at = text.find(kHeader); at != std::string_view::npos;
       at = text.find(kHeader, at + kHeader.size()))
    ++count;
  return count;
}

// Whether the key is there with a count as its value.
bool has_count(std::string_view line, std::string_view key) {
  const std::size_t at = line.find(key);
  if (at == std::string_view::npos) return false;
  const std::string_view value = line.substr(at + key.size());
  const std::size_t digits = value.find_first_not_of("0123456789");
  return digits != std::string_view::npos && digits > 0 &&
         (value[digits] == ',' || value[digits] == '}');
}

// The status in the last record of a log of one rank; nothing if more of the log must be read.
std::optional<Status> last_record_status(const OpenLog& log, const std::filesystem::path& path) {
  if (!log.name) return std::nullopt;
  constexpr std::int64_t kBothEnds = 2 * std::int64_t{kEndBytes};
  const bool in_part = log.size > kBothEnds;
  std::string tail = in_part
                         ? read_at(log.file, path, log.size - std::int64_t{kEndBytes}, kEndBytes)
                         : read_at(log.file, path, 0, static_cast<std::size_t>(log.size));
  // Two of them may be of two runs that wrote to one file.
  const std::size_t headers =
      headers_in(tail) + (in_part ? headers_in(read_at(log.file, path, 0, kEndBytes)) : 0);
  if (headers > 1) return std::nullopt;
  if (tail.ends_with('\n')) tail.pop_back();
  const std::string_view line = std::string_view(tail).substr(tail.rfind('\n') + 1);
  if (!starts_as_record(line) || !is_known_schema(line) || !seal_holds(line)) return std::nullopt;
  // The writer puts the status before the figures, which are most of the record and need not be
  // parsed: quotes within words are escaped, so that what is found here are keys.
  static const std::string kStatus = fmt::format(R"("{}":")", keys::status);
  static const std::string kRows = fmt::format(R"(,"{}":)", keys::rows);
  static const std::string kRow = fmt::format(R"(,"{}":{{)", keys::row);  // of schema 1
  const std::size_t status = line.find(kStatus);
  const bool has_row = has_count(line, kRows) || line.find(kRow) != std::string_view::npos;
  if (status == std::string_view::npos || !has_row) return std::nullopt;
  const std::size_t end = line.find('"', status + kStatus.size());  // of a sealed line: there
  const Json record = Json::parse(fmt::format("{}}}", line.substr(0, end + 1)), nullptr, false);
  if (!record.is_object() || text(record, keys::t) != to_text(Kind::footer) ||
      !integer(record, keys::n))
    return std::nullopt;
  const auto origin = origin_of(record);
  if (!origin || origin->attempt != log.name->attempt || origin->restart != log.name->restart ||
      origin->rank != log.name->rank)
    return std::nullopt;
  return from_text<Status>(text(record, keys::status));
}

}  // namespace

LogFile read_log_file(const std::filesystem::path& path, Depth depth) {
  const OpenLog log = open_log(path);
  // Both ends of a long log are enough for a row, if they hold the header, the row and the footer.
  if (depth == Depth::row && log.name && log.size > 2 * std::int64_t{kEndBytes}) {
    if (auto ends = read_ends(log.file, path, log.size)) return *std::move(ends);
  }
  Parser parser(path);
  LineScanner scanner = scanner_for(parser);
  // Most logs are small; one that grows meanwhile is read to its end.
  const std::size_t chunk_bytes = std::min(kChunkBytes, static_cast<std::size_t>(log.size) + 1);
  for (std::int64_t offset = 0;;) {
    const std::string chunk = read_at(log.file, path, offset, chunk_bytes);
    scanner.feed(chunk);
    offset += static_cast<std::int64_t>(chunk.size());
    if (chunk.size() < chunk_bytes) break;
  }
  scanner.finish();
  return parser.take(depth);
}

std::optional<Status> footer_status(const std::filesystem::path& path) {
  if (const auto status = last_record_status(open_log(path), path)) return status;
  for (const Log& log : read_log_file(path, Depth::row).logs) {
    if (log.footer) return log.footer->status;
  }
  return std::nullopt;
}

LogFile parse_log_file(std::string_view content, const std::filesystem::path& name, Depth depth) {
  Parser parser(name);
  LineScanner scanner = scanner_for(parser);
  scanner.feed(content);
  scanner.finish();
  return parser.take(depth);
}

std::string faults(const LogFile& file, const Log& log) {
  std::string found;
  const auto add = [&](const std::string& fault) { found += (found.empty() ? "" : ", ") + fault; };
  if (log.clash) add("two runs with one id wrote to it");
  if (!log.has_header) add("no header");
  if (!log.footer) add("no footer");
  if (log.missing > 0) add(fmt::format("{} records lost", log.missing));
  if (file.damaged > 0) add(fmt::format("{} damaged lines", file.damaged));
  if (file.newer_schema) add("records of a newer schema, which were not read");
  return found;
}

}  // namespace tessera::runlog
