// SPDX-License-Identifier: Apache-2.0
#include "lib/ledger/ledger.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "lib/base/clock.h"
#include "lib/base/crc32.h"
#include "lib/base/error.h"
#include "lib/base/tree.h"
#include "lib/runlog/before_schema_2.h"

namespace tessera::ledger {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;

fs::path folder_of(const fs::path& project_dir) {
  return project_dir / ".tessera" / "ledger";
}

// Returns a member; `otherwise` if it is absent or null. Throws nlohmann's exceptions on another
// type.
template <class T>
T member(const Json& json, const char* key, T otherwise = {}) {
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? std::move(otherwise) : found->template get<T>();
}

// The items of an array; nothing where it is absent or null.
const Json::array_t& items(const Json& json, const char* key) {
  static const Json::array_t none;
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? none : found->get_ref<const Json::array_t&>();
}

// Returns an entry as a sealed line. Empty members are left out:
//   {"l":1,"op":"accepted","utc":"2026-11-29T12:41:11.204Z","user":"kim","host":"n1",
//    "cluster":"h100","job":"18231","runs":[{"run":"...","id":"...","rep":1,"try":1}],"crc":"..."}
std::string to_line(const Entry& entry) {
  Json json;
  json["l"] = kSchema;
  json["op"] = to_text(entry.op);
  json["utc"] = entry.utc;
  json["user"] = entry.user;
  json["host"] = entry.host;
  const auto put = [&](const char* key, const std::string& text) {
    if (!text.empty()) json[key] = text;
  };
  put("cluster", entry.cluster);
  put("name", entry.name);
  put("job", entry.job);
  if (entry.array) json["array"] = true;
  for (const RunRef& ref : entry.runs) {
    json["runs"].push_back(
        {{"run", ref.run}, {"id", ref.id}, {"rep", ref.repeat}, {"try", ref.attempt}});
  }
  if (!entry.places.empty()) json["places"] = entry.places;
  put("build", entry.build);
  if (entry.status) json["status"] = to_text(*entry.status);
  if (entry.op == Op::final) json["ended_by"] = to_text(entry.ended_by);
  put("reason", entry.reason);
  if (entry.queue_s) json["queue_s"] = *entry.queue_s;
  for (const PlannedPoint& point : entry.points) {
    Json& member = json["points"].emplace_back(Json{
        {"id", point.id}, {"run", point.run}, {"label", point.label}, {"repeats", point.repeats}});
    if (point.point) member["point"] = Json::parse(sweep::canonical_json(*point.point));
  }
  for (const DroppedPoint& point : entry.dropped) {
    Json& member = json["dropped"].emplace_back(
        Json{{"label", point.label}, {"reason", point.reason}, {"detail", point.detail}});
    if (!point.values.empty()) member["values"] = point.values;
  }
  return seal(json.dump(-1, ' ', false, Json::error_handler_t::replace)) + "\n";
}

// Nothing where there is none, and where a newer version wrote what this one does not know: the
// line's other members still say what was submitted.
std::optional<sweep::Point> planned_point(const Json& planned) {
  const auto point = planned.find("point");
  if (point == planned.end()) return std::nullopt;
  try {
    return sweep::parse_point(parse_json(point->dump(), "point"));
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Throws nlohmann's exceptions or std::string on what is no entry.
Entry from_json(const Json& json) {
  if (member<int>(json, "l") != kSchema)
    throw std::string("a schema that this program does not know");
  const auto op = from_text<Op>(member<std::string>(json, "op"));
  if (!op) throw std::string("an operation that this program does not know");
  Entry entry{.op = *op,
              .utc = member<std::string>(json, "utc"),
              .user = member<std::string>(json, "user"),
              .host = member<std::string>(json, "host"),
              .cluster = member<std::string>(json, "cluster"),
              .name = member<std::string>(json, "name"),
              .job = member<std::string>(json, "job"),
              .array = member<bool>(json, "array"),
              .build = member<std::string>(json, "build"),
              .reason = member<std::string>(json, "reason")};
  for (const Json& ref : items(json, "runs")) {
    entry.runs.push_back({.run = member<std::string>(ref, "run"),
                          .id = member<std::string>(ref, "id"),
                          .repeat = member<int>(ref, "rep", 1),
                          .attempt = member<int>(ref, "try", 1)});
  }
  entry.places = member<std::vector<std::size_t>>(json, "places");
  if (!entry.places.empty() && entry.places.size() != entry.runs.size())
    throw std::string("other places than runs");
  if (json.contains("status"))
    entry.status = from_text<runlog::Status>(member<std::string>(json, "status"));
  if (json.contains("ended_by")) {
    entry.ended_by = from_text<runlog::EndedBy>(member<std::string>(json, "ended_by"))
                         .value_or(runlog::EndedBy::unknown);
  } else if (entry.op == Op::final) {
    // Lines of older versions tell it only by the words of the reason.
    entry.ended_by =
        runlog::ended_by_in_words(entry.status.value_or(runlog::Status::unknown), entry.reason);
  }
  if (json.contains("queue_s")) entry.queue_s = member<double>(json, "queue_s");
  for (const Json& point : items(json, "points")) {
    entry.points.push_back({.id = member<std::string>(point, "id"),
                            .run = member<std::string>(point, "run"),
                            .label = member<std::string>(point, "label"),
                            .repeats = member<int>(point, "repeats", 1),
                            .point = planned_point(point)});
  }
  for (const Json& point : items(json, "dropped")) {
    entry.dropped.push_back(
        {.label = member<std::string>(point, "label"),
         .reason = member<std::string>(point, "reason"),
         .detail = member<std::string>(point, "detail"),
         .values = member<std::map<std::string, std::string>>(point, "values")});
  }
  return entry;
}

// Adds the entries of one file. A line that is damaged or not understood is added to the damage.
void read_file_into(Contents& contents, const fs::path& path) {
  const std::string content = read_file(path);
  std::size_t line_number = 0;
  for (std::size_t begin = 0; begin < content.size();) {
    const std::size_t end = content.find('\n', begin);
    ++line_number;
    if (end == std::string::npos)
      return;  // torn: its writer died in it, before anything came of it
    const std::string_view line(content.data() + begin, end - begin);
    begin = end + 1;
    std::string what;
    if (!seal_holds(line)) {
      what = "the line is damaged: its checksum does not hold";
    } else {
      try {
        contents.entries.push_back(from_json(Json::parse(line)));
        continue;
      } catch (const std::string& cause) {
        what = fmt::format("the line holds {}", cause);
      } catch (const nlohmann::json::exception&) {
        what = "the line is no ledger entry";
      }
    }
    contents.damage.push_back(
        {.where = fmt::format("{}:{}", path.string(), line_number), .what = what});
  }
}

}  // namespace

Contents read_ledger(const fs::path& project_dir) {
  Contents contents;
  std::vector<fs::path> files;
  std::error_code fault;
  for (fs::directory_iterator it(folder_of(project_dir), fault), end; !fault && it != end;
       it.increment(fault)) {
    if (it->path().extension() == ".jsonl") files.push_back(it->path());
  }
  if (fault && fault != std::errc::no_such_file_or_directory &&
      fault != std::errc::not_a_directory) {
    throw Error(ExitCode::io, folder_of(project_dir).string(),
                fmt::format("cannot be read: {}", fault.message()));
  }
  std::ranges::sort(files);
  for (const fs::path& file : files) read_file_into(contents, file);
  return contents;
}

void require_undamaged(const Contents& contents) {
  if (contents.damage.empty()) return;
  const Damage& first = contents.damage.front();
  throw Error(ExitCode::conflict, first.where, first.what,
              "submit rebuild makes the ledger anew from what the runs left, or restore the file "
              "from a copy; nothing was submitted");
}

Ledger::Ledger(const fs::path& project_dir, std::string user, std::string host, Tail tail)
    : path_(folder_of(project_dir) / fmt::format("{}@{}.jsonl", user, host)),
      user_(std::move(user)),
      host_(std::move(host)) {
  make_directories(path_.parent_path());
  file_ = FileDescriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file_) throw_errno(path_, "cannot be written", errno);
  if (tail == Tail::trust) return;
  // Cut off a last line that has no end.
  const std::string content = read_file(path_);
  const std::size_t last_end = content.rfind('\n');
  const std::size_t whole = last_end == std::string::npos ? 0 : last_end + 1;
  if (whole != content.size() && ::ftruncate(file_.get(), static_cast<off_t>(whole)) != 0) {
    throw_errno(path_, "cannot be mended", errno);
  }
}

void Ledger::append(Entry entry) {
  append(std::span<const Entry>(&entry, 1));
}

void Ledger::append(std::span<const Entry> entries) {
  std::string lines;
  for (const Entry& each : entries) {
    Entry entry = each;
    if (entry.utc.empty()) entry.utc = utc_now();
    entry.user = user_;
    if (entry.host.empty()) entry.host = host_;
    lines += to_line(entry);
  }
  const off_t before = ::lseek(file_.get(), 0, SEEK_END);
  try {
    write_all(file_, lines, path_);
    if (::fsync(file_.get()) != 0) throw_errno(path_, "cannot be written", errno);
  } catch (const Error&) {
    // Half a line would be cut off at the next start; a whole one that did not reach the disk must
    // not stay either.
    if (before >= 0 && ::ftruncate(file_.get(), before) != 0) throw;
    throw;
  }
}

std::map<std::string, RunState> run_states(const Contents& contents) {
  std::map<std::string, RunState> states;
  for (const Entry& entry : contents.entries) {
    for (std::size_t i = 0; i < entry.runs.size(); ++i) {
      const RunRef& ref = entry.runs[i];
      RunState& state = states[ref.run];
      state.ref = ref;
      const auto found = std::ranges::find(state.attempts, ref.attempt, &AttemptState::attempt);
      AttemptState& attempt =
          found != state.attempts.end() ? *found : state.attempts.emplace_back();
      attempt.attempt = ref.attempt;
      // A cancelled run that ended later is final; a final one is not made open again by a late
      // cancel.
      if (attempt.last != Op::final || entry.op == Op::final) attempt.last = entry.op;
      if (entry.op == Op::cancel) attempt.cancelled = true;
      if (entry.op == Op::accepted || entry.op == Op::adopted) attempt.confirmed = true;
      if (entry.op == Op::intent) {
        attempt.since_utc = entry.utc;
        attempt.name = entry.name;
        attempt.array = entry.array;
        attempt.index = entry.places.empty() ? i : entry.places[i];
      }
      // Whose it is, not who saw its end.
      if (attempt.user.empty() || entry.op == Op::intent) {
        attempt.user = entry.user;
        attempt.host = entry.host;
      }
      // Later entries add to earlier ones. Their empty members change nothing.
      if (!entry.cluster.empty()) attempt.cluster = entry.cluster;
      if (!entry.job.empty()) attempt.job = entry.job;
      if (!entry.build.empty()) attempt.build = entry.build;
      if (entry.status) attempt.status = entry.status;
      if (entry.op == Op::final) attempt.ended_by = entry.ended_by;
      if (!entry.reason.empty()) attempt.reason = entry.reason;
      if (entry.queue_s) attempt.queue_s = entry.queue_s;
    }
  }
  for (auto& [run, state] : states) std::ranges::sort(state.attempts, {}, &AttemptState::attempt);
  return states;
}

}  // namespace tessera::ledger
