// SPDX-License-Identifier: Apache-2.0
#include "collect/results.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "lib/base/file.h"

namespace tessera::collect {

namespace fs = std::filesystem;

namespace {

// A file beside `path` with the new content, until it takes its place.
class NewContent {
 public:
  NewContent(fs::path path, std::string_view content)
      : path_(std::move(path)), temporary_(path_.string() + fmt::format(".tmp.{}", ::getpid())) {
    try {
      std::error_code ignored;
      if (fs::is_directory(path_, ignored)) throw_errno(path_, "cannot be written", EISDIR);
      const FileDescriptor file(
          ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
      if (!file) throw_errno(path_, "cannot be written", errno);
      write_all(file, content, path_);
      if (::fsync(file.get()) != 0) throw_errno(path_, "cannot be written", errno);
    } catch (...) {
      ::unlink(temporary_.c_str());
      throw;
    }
  }
  NewContent(const NewContent&) = delete;
  NewContent& operator=(const NewContent&) = delete;
  ~NewContent() {
    if (!in_place_) ::unlink(temporary_.c_str());
  }

  void take_place() {
    if (::rename(temporary_.c_str(), path_.c_str()) != 0)
      throw_errno(path_, "cannot be written", errno);
    in_place_ = true;
  }

 private:
  fs::path path_;
  fs::path temporary_;
  bool in_place_ = false;
};

}  // namespace

ResultPaths result_paths(const std::string& save_path, const std::string& project) {
  std::error_code ignored;
  fs::path stem = save_path;
  if (save_path.empty()) {
    stem = fs::path("results") / project / "results";
  } else if (save_path.ends_with('/') || fs::is_directory(stem, ignored)) {
    stem /= "results";
  }
  return {.csv = stem.string() + ".csv", .markdown = stem.string() + ".md"};
}

void save(const ResultPaths& paths, const std::string& csv, const std::string& markdown) {
  if (paths.csv.has_parent_path()) make_directories(paths.csv.parent_path());
  NewContent new_csv(paths.csv, csv);
  NewContent new_markdown(paths.markdown, markdown);
  new_csv.take_place();
  new_markdown.take_place();
}

}  // namespace tessera::collect
