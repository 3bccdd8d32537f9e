// SPDX-License-Identifier: Apache-2.0
#include "apps/submit/cli/init_verb.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "apps/submit/cli/submission_flags.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/tree.h"
#include "lib/cluster/backends.h"
#include "lib/cluster/cluster_file.h"
#include "lib/cluster/cluster_folders.h"
#include "lib/hardware/catalogue.h"
#include "lib/model/data_folder.h"

namespace tessera::apps {

namespace fs = std::filesystem;

namespace {

constexpr const char* kVerb = "submit init";

struct InitRequest {
  std::string name;
  std::string partition;
  std::string workspace;
  std::string gpu_catalogue;
};

// It is a file's name, stands in tables, and `-c a,b` would be two.
std::string cluster_name(const InitRequest& request) {
  const std::string& name = request.name;
  const auto is_letter = [](unsigned char c) { return std::isalnum(c) != 0; };
  const bool fits =
      !name.empty() && is_letter(static_cast<unsigned char>(name.front())) &&
      std::ranges::all_of(name, [&](char c) {
        return is_letter(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
      });
  if (!fits || name.ends_with(".yaml"))
    throw Error(ExitCode::usage, kVerb, fmt::format("'{}' is no name of a cluster", name),
                "letters, digits, dots, underscores and dashes, beginning with a letter or digit; "
                "the file is NAME.yaml");
  if (is_file(data_folder() / "clusters" / (name + ".yaml")))
    throw Error(ExitCode::usage, kVerb, fmt::format("'{}' is a built-in cluster", name),
                "take another name");
  return name;
}

fs::path workspace_of(const InitRequest& request) {
  fs::path folder = request.workspace;
  const char* variable = std::getenv("TESSERA_WORKSPACE");
  if (folder.empty() && variable != nullptr) folder = variable;
  if (folder.empty()) folder = "runs";
  folder = fs::absolute(folder).lexically_normal();
  return folder.has_filename() ? folder : folder.parent_path();
}

// Writes NAME.yaml into the user's cluster files and prints what comes next; returns the exit code.
// Error(usage) for a name that is none of a cluster file or a partition that is not there,
// Error(conflict) if there is such a file, Error(unreachable) if Slurm does not answer.
int run_init(const InitRequest& request) {
  const std::string name = cluster_name(request);
  const fs::path folder = cluster::user_cluster_folder();
  if (folder.empty())
    throw Error(ExitCode::io, "HOME", "is not set, so there is no folder for cluster files",
                "set it, or XDG_CONFIG_HOME");
  const fs::path file = folder / (name + ".yaml");
  std::error_code ignored;
  if (fs::symlink_status(file, ignored).type() != fs::file_type::not_found)
    throw Error(ExitCode::conflict, file.string(), "is there already",
                "edit it, remove it, or take another name");
  const hardware::Catalogue catalogue = hardware::load_catalogue(request.gpu_catalogue);
  const cluster::ClusterTemplate made =
      cluster::write_template(catalogue, {.name = name,
                                          .partition = request.partition,
                                          .workspace = workspace_of(request).string(),
                                          .trainer = cluster::local_trainer({}).string()});
  // What is written can be read, whatever names the site has.
  cluster::parse_cluster(parse_yaml(made.yaml, file.string()), file.string());
  make_directories(folder);
  write_file_atomically(file, made.yaml);

  fmt::print("{}: {}\n", file.string(), made.about);
  for (const std::string& note : made.notes) fmt::print("{}\n", note);
  fmt::print(
      "Next:\n  ${{EDITOR:-vi}} {}\n  submit doctor -c {}\n  submit -m cpu-2m -s 7 8 --batch_sizes "
      "4 "
      "--microbatch_size 1 -t fp32 -c {} --gpu_types cpu --set threads=1\n",
      file.string(), name, name);
  return 0;
}

}  // namespace

void add_init(cli::Command& submit) {
  const auto request = std::make_shared<InitRequest>();
  cli::Command& init = submit.add_verb("init", "Write the cluster file of this Slurm cluster");
  init.details =
      "Slurm is asked for its partitions, GPUs and limits. The file goes to your cluster files, "
      "~/.config/tessera/clusters; -c NAME then names the cluster.";
  init.add_option("name", request->name, "What to call the cluster")->type_name("NAME")->required();
  init.add_option("--partition", request->partition,
                  "Write the file for this partition; by default Slurm's own default, or the one "
                  "with most GPU nodes")
      ->type_name("NAME");
  declare_workspace(init, request->workspace);
  declare_catalogue(init, request->gpu_catalogue);
  init.examples = {{"submit init hgx && submit doctor hgx", "write hgx.yaml, then check it"}};
  init.exit_codes = {{ExitCode::refused, "Slurm shows no partition"},
                     {ExitCode::conflict, "the cluster file is there already"},
                     {ExitCode::unreachable, "Slurm does not answer"}};
  init.action = [request] { return run_init(*request); };
}

}  // namespace tessera::apps
