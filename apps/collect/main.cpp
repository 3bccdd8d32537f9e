// SPDX-License-Identifier: Apache-2.0
// collect: run logs -> results.csv and results.md. Flags only; docs/collect.md documents them.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "collect/collection.h"
#include "collect/results.h"
#include "collect/show.h"
#include "collect/writer_csv.h"
#include "collect/writer_markdown.h"
#include "collect/writer_mosaic.h"
#include "collect/writer_terminal.h"
#include "lib/base/error.h"
#include "lib/base/terminal.h"
#include "lib/base/text.h"
#include "lib/cli/program.h"
#include "lib/ledger/state.h"
#include "lib/point/identity.h"

namespace {

namespace fs = std::filesystem;
using namespace tessera;

struct Options {
  std::vector<std::string> places;  // PROJECT or folders
  std::string run;                  // of show
  std::string project;
  std::vector<std::string> filters;
  std::string save_path;
  bool print = false;
  std::vector<std::string> logs;
  std::string workspace;
  std::string gpu_catalogue;
  bool offline = false;
  std::string format = "table";
};

void declare_sources(CLI::App& app, Options& options) {
  app.add_option("--project", options.project, "Take only runs of this project, compared whole")
      ->type_name("NAME");
  app.add_option("--filters", options.filters,
                 "Take only runs whose names hold each of these texts")
      ->type_name("TEXT");
  app.add_option("--logs", options.logs,
                 "Read these files as logs, and every file below these folders")
      ->type_name("FILE|DIR");
  app.add_option("--workspace", options.workspace, "Folder that holds the projects")
      ->type_name("DIR");
  app.add_option("--gpu-catalogue", options.gpu_catalogue,
                 "Add the GPUs and peaks of this file; they win over those of log and catalogue")
      ->type_name("FILE");
  app.add_flag("--offline", options.offline, "Ask no cluster about runs that have not ended");
}

// A legal project's name that is no file or folder here, or is one of the workspace's projects too.
bool names_project(const std::string& place, const Options& options) {
  if (!sweep::project_fault(place).empty()) return false;
  std::error_code ignored;
  if (!fs::exists(place, ignored)) return true;
  return fs::is_directory(ledger::workspace_to_read(place, options.workspace) / place, ignored);
}

void add_project(collect::Request& request, const std::string& name, const Options& options) {
  const fs::path workspace = ledger::workspace_to_read(name, options.workspace);
  request.projects.push_back({.workspace = workspace, .name = name});
}

void check_project(const std::string& name, std::string_view where) {
  if (const std::string fault = sweep::project_fault(name); !fault.empty()) {
    throw Error(ExitCode::usage, where, fmt::format("project '{}' {}", name, fault),
                "a to z, 0 to 9 and single '-', at most 16, beginning with a letter");
  }
}

// A project that has a folder in its workspace, or that a submit used.
bool project_exists(const std::string& name, const Options& options) {
  std::error_code ignored;
  return fs::is_directory(ledger::workspace_to_read(name, options.workspace) / name, ignored);
}

// Among several places a name that is nothing must not be passed over: the others would be taken
// for all that was asked for.
void require_place(const std::string& name, std::string_view where, const Options& options) {
  if (project_exists(name, options)) return;
  const fs::path workspace = ledger::workspace_to_read(name, options.workspace);
  throw Error(
      ExitCode::empty, where,
      fmt::format("no project {} in {}, and no folder of this name", name, workspace.string()),
      "give --workspace, or leave it out");
}

collect::Request make_request(const Options& options) {
  collect::Request request;
  request.selection = {.project = options.project, .filters = options.filters};
  request.ask = !options.offline;
  if (!options.project.empty()) check_project(options.project, "--project");
  for (const std::string& place : options.places) {
    std::error_code ignored;
    if (names_project(place, options)) {
      if (options.places.size() > 1 || !options.logs.empty()) require_place(place, place, options);
      add_project(request, place, options);
    } else if (fs::is_directory(place, ignored)) {
      request.folders.emplace_back(place);
    } else if (fs::exists(place, ignored)) {
      throw Error(ExitCode::usage, place, "is a file, not a project or folder",
                  "give log files with --logs");
    } else if (place.find('/') != std::string::npos) {
      throw Error(ExitCode::io, place, "cannot be read: No such file or directory");
    } else {
      check_project(place, "PROJECT");
    }
  }
  for (const std::string& path : options.logs) request.logs.emplace_back(path);
  // Below folders and in logs any project may be; that none is there shows when they are read.
  if (options.places.empty() && options.logs.empty()) {
    std::string project = options.project;
    if (project.empty()) {
      const auto last = ledger::last_project();
      if (!last) {
        throw Error(ExitCode::usage, "PROJECT", "is missing, and no project was used before",
                    "give a project, a folder, or --logs");
      }
      project = *last;
    }
    add_project(request, project, options);
  }
  if (!options.gpu_catalogue.empty()) {
    request.catalogues.user = hardware::parse_catalogue(read_yaml(options.gpu_catalogue));
  }
  request.catalogues.built_in = hardware::built_in_catalogue();
  return request;
}

// Speaks only when reading takes long and a person watches.
class Progress {
 public:
  void operator()(std::size_t done, std::size_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (!is_terminal_ || now - spoke_ < std::chrono::seconds(2)) return;
    spoke_ = now;
    fmt::print(stderr, "collect: {} of {} runs read\n", done, total);
  }

 private:
  bool is_terminal_ = ::isatty(STDERR_FILENO) == 1;
  std::chrono::steady_clock::time_point spoke_ = std::chrono::steady_clock::now();
};

std::string name_of_places(const collect::Request& request) {
  std::string text;
  for (const collect::Project& project : request.projects) {
    text +=
        fmt::format("{}{}", text.empty() ? "" : ", ", (project.workspace / project.name).string());
  }
  for (const auto* paths : {&request.folders, &request.logs}) {
    for (const fs::path& path : *paths)
      text += fmt::format("{}{}", text.empty() ? "" : ", ", path.string());
  }
  return text;
}

[[noreturn]] void no_run(const collect::Request& request, const collect::Notes& notes) {
  const collect::Selection& selection = request.selection;
  const std::string places = name_of_places(request);
  if (!selection.project.empty() && selection.filters.empty()) {
    throw Error(ExitCode::empty, "--project",
                fmt::format("no run of project {} in {}", selection.project, places));
  }
  if (!selection.filters.empty()) {
    throw Error(ExitCode::empty, places,
                selection.project.empty() ? "no run that --filters take"
                                          : "no run that --project and --filters take");
  }
  // What was left out is why there is none: said in the same line.
  if (!notes.lines().empty()) {
    const std::size_t others = notes.lines().size() - 1;
    throw Error(ExitCode::empty, "no run found", notes.lines().front(),
                others == 0 ? std::string()
                            : fmt::format("{} {} left out", counted(others, "more file"),
                                          others == 1 ? "was" : "were"));
  }
  throw Error(ExitCode::empty, places, "no run found",
              "give --workspace, a folder of runs, or log files with --logs");
}

int run_collect(const Options& options) {
  const bool mosaic = options.format == "mosaic";
  if (options.format != "table" && !mosaic) {
    throw Error(ExitCode::usage, "--format", fmt::format("unknown value '{}'", options.format),
                "table or mosaic");
  }
  collect::Request request = make_request(options);
  request.progress = Progress();
  const collect::Collection collection = collect::collect_rows(request);
  if (collection.rows.empty()) no_run(request, collection.notes);
  for (const std::string& line : collection.notes.lines())
    fmt::print(stderr, "collect: {}\n", line);

  std::set<std::string> projects;
  std::set<std::string> without_mfu;
  for (const collect::Row& row : collection.rows) {
    projects.insert(row.project);
    if (!row.no_mfu.empty()) without_mfu.insert(row.no_mfu);
  }
  for (const std::string& reason : without_mfu) fmt::print(stderr, "collect: no MFU: {}\n", reason);
  const std::string project = projects.size() == 1 ? *projects.begin() : std::string();
  const std::string title = project.empty() ? "Results" : "Results of " + project;
  const std::string markdown = mosaic ? collect::mosaic_markdown(collection.rows)
                                      : collect::markdown(collection.rows, title);
  const std::string csv =
      mosaic ? collect::mosaic_csv(collection.rows) : collect::csv(collection.rows);
  const collect::ResultPaths paths = collect::result_paths(options.save_path, project);
  collect::save(paths, csv, markdown);
  if (options.print)
    fmt::print("{}\n", collect::terminal_table(collection.rows, terminal_width(stdout)));
  fmt::print("{} of {}: {}, {}\n", counted(collection.rows.size(), "row"),
             counted(collection.runs, "run"), paths.csv.string(), paths.markdown.string());
  const auto above = std::ranges::count_if(collection.rows, [](const collect::Row& row) {
    return std::ranges::find(row.marks, collect::Mark::above_peak) != row.marks.end();
  });
  if (above > 0) {
    fmt::print(stderr,
               "collect: {} with MFU or HFU above 100 %: the peak is too low, so these are no "
               "utilizations (mark above-peak)\n",
               counted(above, "row"));
  }
  return static_cast<int>(ExitCode::ok);
}

// Projects that may hold a run of this id, the last one used first.
std::vector<std::string> projects_to_search() {
  std::vector<std::string> names;
  const auto last = ledger::last_project();
  if (last) names.push_back(*last);
  for (const auto& [name, workspace] : ledger::remembered_projects()) {
    if (name != last) names.push_back(name);
  }
  return names;
}

bool is_id(const std::string& text) {
  return text.size() == 12 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

int run_show(Options options) {
  std::error_code ignored;
  if (options.run.find('/') != std::string::npos && fs::is_directory(options.run, ignored)) {
    options.places.push_back(options.run);
    options.run = fs::absolute(options.run).lexically_normal().filename().string();
    if (options.run.empty())
      options.run = fs::absolute(options.places.back()).lexically_normal().parent_path().filename();
  }
  // The run's name says its project; an id is looked for where anything was submitted.
  const auto parts = collect::parse_run_name(options.run);
  const bool anywhere = options.places.empty() && options.logs.empty() && options.project.empty();
  if (parts && anywhere) options.project = parts->project;
  std::vector<std::string> elsewhere;
  if (anywhere && is_id(options.run)) elsewhere = projects_to_search();
  if (!elsewhere.empty()) options.project = elsewhere.front();
  collect::Request request = make_request(options);
  collect::Notes notes;
  auto shown = collect::find_runs(request, options.run, notes);
  for (std::size_t i = 1; i < elsewhere.size() && shown.empty(); ++i) {
    options.project = elsewhere[i];
    const collect::Request other = make_request(options);
    request.projects.insert(request.projects.end(), other.projects.begin(), other.projects.end());
    shown = collect::find_runs(other, options.run, notes);
  }
  for (const std::string& line : notes.lines()) fmt::print(stderr, "collect: {}\n", line);
  if (shown.empty()) {
    throw Error(ExitCode::empty, options.run,
                fmt::format("no such run in {}", name_of_places(request)),
                "the column `run` of results.csv has the names");
  }
  for (const collect::ShownRun& run : shown) fmt::print("{}", collect::show(run));
  return static_cast<int>(ExitCode::ok);
}

int run(const std::vector<std::string>& words) {
  cli::Command app("collect", "Make the table of results from the run logs of a project");
  app.details = "results.csv has every column, results.md the published ones with MFU and HFU.";
  Options options;
  app.add_option("places", options.places,
                 "A project (default: the last one used), or folders that hold runs")
      ->type_name("PROJECT|DIR");
  app.option_defaults()->group("Which runs");
  declare_sources(app, options);
  app.option_defaults()->group("Results");
  app.add_option("-s,--save-path", options.save_path,
                 "Stem of the two files, or a folder (default: results/<project>/results)")
      ->type_name("STEM|DIR");
  app.add_flag("-p,--print-results", options.print, "Print the rows, too, as wide as the terminal");
  app.add_option("--format", options.format,
                 "Columns of the files: table has all, mosaic the 20 published ones, rounded down "
                 "as published (default table)")
      ->type_name("table|mosaic");
  app.examples = {{"collect", "the last project: results/<project>/results.csv and .md"},
                  {"collect mpt-h100 --filters 7b s2048 -p", "runs whose names hold both texts"},
                  {"collect /backup/runs -s out/", "every run below a folder, into out/"}};
  app.shared_exit_codes = {{ExitCode::ok, "done"},
                           {ExitCode::internal, "a bug in Tessera: please report it"},
                           {ExitCode::usage, "the command line is wrong"},
                           {ExitCode::input, "a file that was read is wrong: a GPU catalogue"},
                           {ExitCode::empty, "no run found"},
                           {ExitCode::io, "a file, a folder or stdout cannot be used"}};
  app.action = [&] { return run_collect(options); };
  cli::Command& show =
      app.add_verb("show", "Print a run: specification, log, and how its MFU and HFU are made");
  show.add_option("run", options.run, "The run's name, its id, or its folder")
      ->type_name("RUN|DIR")
      ->required();
  declare_sources(show, options);
  show.examples = {{"collect show 1f0c9a3b77de", "a run by its id"}};
  show.action = [&] { return run_show(options); };
  cli::add_general_flags(app, cli::CompletionBy::flag);
  return cli::run_command_line(app, words, ExitCode::io);
}

}  // namespace

int main(int argc, char** argv) {
  return cli::run_program("collect", ExitCode::io, ExitCode::internal, [&] {
    const int code = run(cli::words_of(argc, argv));
    if (code == 0) cli::require_printed(ExitCode::io);
    return code;
  });
}
