// SPDX-License-Identifier: Apache-2.0
// The program `trainer`: trains one point and writes its run log. Exit codes: docs/exit-codes.md.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <span>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/numbers.h"
#include "lib/cli/program.h"
#include "lib/point/memory_need.h"
#include "lib/point/run_spec.h"
#include "lib/schedule/schedule.h"
#include "trainer/bench/bench_ops.h"
#include "trainer/capabilities.h"
#include "trainer/data/pack.h"
#include "trainer/device/device.h"
#include "trainer/launch/local_ranks.h"
#include "trainer/launch/place.h"
#include "trainer/run/accept.h"
#include "trainer/run/run.h"
#include "trainer/run/run_device.h"
#include "trainer/selftest/selftest.h"

namespace {

using namespace tessera;

std::atomic<int> stop_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "is written by a signal handler");

// The first of all stays the reason.
void ask_to_stop(int signal) {
  int none = 0;
  stop_signal.compare_exchange_strong(none, signal);
}

// The first asks for an end with a true footer, the next one ends at once. SIGUSR1, by which
// schedulers say that the time limit is near, may come more than once.
void catch_signals() {
  struct sigaction action{};
  action.sa_handler = ask_to_stop;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGUSR1, &action, nullptr);
  action.sa_flags = SA_RESETHAND;
  for (const int signal : {SIGTERM, SIGINT}) ::sigaction(signal, &action, nullptr);
  // A reader of stdout that has gone is an error of write(2), which says so.
  ::signal(SIGPIPE, SIG_IGN);
}

// Reads the specification from stdin ("-"), from $TESSERA_SPEC ("") or from a file. Error(spec).
sweep::RunSpec read_spec(const std::string& from) {
  if (from == "-") {
    return sweep::parse_run_spec(std::string(std::istreambuf_iterator<char>(std::cin), {}),
                                 "stdin");
  }
  if (from.empty()) {
    const char* text = std::getenv("TESSERA_SPEC");
    if (text == nullptr) {
      throw Error(ExitCode::spec, "--spec", "no run specification is given",
                  "--spec FILE, or the environment variable TESSERA_SPEC");
    }
    return sweep::parse_run_spec(text, "TESSERA_SPEC");
  }
  try {
    return sweep::parse_run_spec(read_file(from), from);
  } catch (const Error& error) {
    throw Error(ExitCode::spec, "", error.what());
  }
}

int threads_of(const std::string& text) {
  constexpr std::int64_t kMostThreads = 1024;
  return static_cast<int>(require_integer(text, "--threads", 1, kMostThreads));
}

// Prints the rate of large f32 matrix products with these threads, as one JSON object.
int measure_peak(int threads) {
  constexpr double kSeconds = 2;
  const trainer::GemmPeak gemm = trainer::measure_gemm_peak(threads, kSeconds);
  const std::string disturbed =
      gemm.is_undisturbed()
          ? ""
          : fmt::format(R"("disturbed":"{}",)", to_text(hardware::Disturbance::other_work));
  std::cout
      << fmt::format(
             R"({{"tflops":{},"threads":{},"cpu_share":{},"undisturbed":{},{}"source":"{}"}})",
             shortest(gemm.tflops), threads, shortest(gemm.cpu_share), gemm.is_undisturbed(),
             disturbed, gemm.source(threads))
      << "\n";
  return static_cast<int>(ExitCode::ok);
}

// Prints the schedule of any point, also of one that this trainer cannot run.
int print_schedule(const sweep::RunSpec& spec) {
  const std::int64_t microbatch =
      spec.microbatch > 0 ? spec.microbatch : spec.point.microbatch_size;
  if (microbatch == sweep::kAutoMicrobatch) {
    throw Error(ExitCode::spec, "point.microbatch_size", "auto: which one is not said",
                "a number, or `microbatch` as submit writes it");
  }
  if (spec.point.global_batch % spec.point.gpus != 0) {
    throw Error(
        ExitCode::spec, "point.global_batch",
        fmt::format("{} is not divisible by {} ranks", spec.point.global_batch, spec.point.gpus));
  }
  const memory::Config config = sweep::memory_config(spec.point, microbatch);
  std::cout << memory::describe(
      memory::schedule(config, memory::microbatch_count(config.device_batch, config.microbatch)),
      config.shape);
  return static_cast<int>(ExitCode::ok);
}

// Packs the texts into the token file that `files` names first. Error(usage).
int pack(const std::vector<std::string>& files) {
  if (files.size() < 2)
    throw Error(ExitCode::usage, "FILE", "is missing", "write trainer pack-bytes OUT FILE...");
  if (files.front() == "-")
    throw Error(ExitCode::usage, "OUT", "is stdout, where no header can be written last",
                "name a file");
  catch_signals();
  const trainer::Packed packed =
      trainer::pack_bytes(files.front(), std::span(files).subspan(1), stderr, stop_signal);
  std::cout << fmt::format("{}: {} tokens, {} bytes, vocabulary {}\n", files.front(), packed.tokens,
                           packed.bytes, trainer::kByteVocab);
  return static_cast<int>(ExitCode::ok);
}

// The model and microbatch that a specification names, else MPT's 125m.
trainer::BenchShape bench_shape(const std::string& spec_from) {
  trainer::BenchShape shape;
  if (spec_from.empty()) return shape;
  const sweep::RunSpec spec = read_spec(spec_from);
  // Any rank's operations are the same.
  trainer::accept(spec, {.ranks = static_cast<int>(spec.point.gpus),
                         .nodes = static_cast<int>(spec.point.nodes)});
  const memory::Config config =
      trainer::setup_of(
          spec, trainer::run_capacity(spec, nullptr, trainer::cpu_device(1)->info().memory_bytes))
          .memory;
  return {.d_model = config.shape.d_model,
          .q_heads = config.shape.n_heads,
          .kv_heads = config.shape.n_kv_heads,
          .head_dim = config.shape.head_dim,
          .ffn = config.shape.ffn,
          .vocab = config.shape.vocab,
          .seq = config.seq_len,
          .sequences = config.microbatch,
          .head_rows = memory::head_chunk_rows(config),
          .fused_gelu = memory::fuses_gelu(config)};
}

// --from: 1 or more, with one part that has numbered cases.
int first_case(const std::string& from, const std::vector<std::string>& parts) {
  if (from.empty()) return 1;
  constexpr std::int64_t kMostCases = 1 << 30;
  const auto number = static_cast<int>(require_integer(from, "--from", 1, kMostCases));
  if (parts.size() != 1 || (parts[0] != "attention" && parts[0] != "operations"))
    throw Error(ExitCode::usage, "--from", "goes with one part",
                "add --parts attention or --parts operations");
  return number;
}

// Runs the named parts of the self-test, or all that the device has.
int check_device(const std::vector<std::string>& names, trainer::SelftestOptions options) {
  for (const std::string& name : names) {
    const auto part = from_text<trainer::SelftestPart>(name);
    if (!part)
      throw Error(ExitCode::usage, "--parts", fmt::format("'{}' is no part of it", name),
                  suggestion(name, all_names<trainer::SelftestPart>()));
    const bool needs_gpu =
        *part == trainer::SelftestPart::attention || *part == trainer::SelftestPart::training;
    if (needs_gpu && !options.gpu)
      throw Error(ExitCode::usage, "--parts", fmt::format("{} compares a GPU", name), "add --gpu");
    options.parts.push_back(*part);
  }
  const bool holds = trainer::selftest(options, stdout);
  return static_cast<int>(holds ? ExitCode::ok : ExitCode::failed);
}

// OpenBLAS reads its core type before main: the program starts once more where another is better
// than the one it chose. A person's own choice stands.
void choose_blas_core(char** argv) {
  constexpr const char* kVariable = "OPENBLAS_CORETYPE";
  if (std::getenv(kVariable) != nullptr) return;
  const std::string core = trainer::better_blas_core();
  if (core.empty()) return;
  std::error_code fault;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", fault);
  if (fault || ::setenv(kVariable, core.c_str(), 1) != 0) return;
  ::execv(self.c_str(), argv);
}

// This command as N ranks on this machine. A specification on stdin is read here, once for all.
int run_ranks(int ranks, std::span<const std::string> words, const std::string& spec_from) {
  const trainer::Place place = trainer::place_of(trainer::process_environment);
  if (place.ranks > 1)
    throw Error(
        ExitCode::usage, "--nproc",
        fmt::format("this is rank {} of {} already ({})", place.rank, place.ranks, place.from),
        "--nproc starts the ranks of one machine, alone");
  // What is wrong with it is told once, not by each rank.
  if (spec_from == "-") {
    const std::string text(std::istreambuf_iterator<char>(std::cin), {});
    sweep::parse_run_spec(text, "stdin");
    if (::setenv("TESSERA_SPEC", text.c_str(), 1) != 0)
      throw Error(ExitCode::host_oom, "TESSERA_SPEC", "cannot be set");
  } else {
    read_spec(spec_from);
  }
  // Each rank has this command line without --nproc and without a specification on stdin.
  std::vector<std::string> command{std::filesystem::read_symlink("/proc/self/exe").string()};
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    const bool is_stdin = spec_from == "-" && (word == "--spec" || word == "--spec=-");
    if (word == "--nproc" || (is_stdin && word == "--spec")) ++i;  // its value goes with it
    if (word != "--nproc" && !word.starts_with("--nproc=") && !is_stdin) command.emplace_back(word);
  }
  catch_signals();
  return trainer::run_local_ranks(ranks, command, stop_signal);
}

// ---- the command line ----

// An answer is what was asked for; what a run prints is for people alone, its log says all.
int answered(int code) {
  if (code == 0) cli::require_printed(ExitCode::failed);
  return code;
}

// As written, for one mode or another.
struct Flags {
  std::string spec;
  std::string nproc;
  bool profile = false;
  std::string threads = "1";
  bool gpu = false;
  bool json = false;
  std::vector<std::string> parts;
  bool small = false;
  std::string from;
  std::vector<std::string> files;
};

void declare_spec(cli::Command& command, Flags& flags, const char* help) {
  command.add_option("--spec", flags.spec, help)->type_name("FILE");
}

void declare_threads(cli::Command& command, Flags& flags) {
  command.add_option("--threads", flags.threads, "Compute with N threads (default 1)")
      ->type_name("N");
}

void add_selftest(cli::Command& program, Flags& flags, char** argv) {
  cli::Command& selftest =
      program.add_verb("selftest", "Check that the device computes what it should");
  constexpr int kSelftestParts = 4;
  selftest
      .add_option("--parts", flags.parts,
                  "Check only these parts; attention and training need --gpu")
      ->type_name("attention|operations|training|bits")
      ->expected(1, kSelftestParts);
  selftest.add_flag("--gpu", flags.gpu, "Check the GPU instead of the CPU");
  selftest.add_flag("--small", flags.small, "Check only small cases");
  selftest
      .add_option("--from", flags.from,
                  "Begin with the case of this number, as stderr tells it; with one part alone, "
                  "attention or operations")
      ->type_name("N");
  declare_threads(selftest, flags);
  selftest.examples = {{"trainer selftest --gpu", "whether this GPU computes what it should"}};
  selftest.exit_codes = {{ExitCode::ok, "all is as it should be"},
                         {ExitCode::unsupported, "no GPU, or one of its libraries is missing"},
                         {ExitCode::wrong_device, "a GPU that cannot be used"},
                         {ExitCode::failed, "something is wrong, or not all was printed"}};
  selftest.action = [&flags, argv] {
    choose_blas_core(argv);
    return answered(check_device(flags.parts, {.gpu = flags.gpu,
                                               .threads = threads_of(flags.threads),
                                               .parts = {},
                                               .small = flags.small,
                                               .from = first_case(flags.from, flags.parts)}));
  };
}

void add_bench_ops(cli::Command& program, Flags& flags, char** argv) {
  cli::Command& bench = program.add_verb(
      "bench-ops", "Measure each operation beside a plain copy and a plain matrix product");
  declare_spec(
      bench, flags,
      "Take the sizes of this specification's model and microbatch; by default MPT's 125m");
  declare_threads(bench, flags);
  bench.add_flag("--gpu", flags.gpu, "Measure the GPU instead of the CPU");
  bench.add_flag("--json", flags.json, "Print JSON on stdout, and the table on stderr");
  bench.examples = {{"trainer bench-ops --threads 8", "GB/s and FLOP/s of each operation here"}};
  bench.exit_codes = {{ExitCode::spec, "the specification is wrong"},
                      {ExitCode::unsupported, "no GPU, or a setting that this trainer cannot do"},
                      {ExitCode::oom, "out of device memory"},
                      {ExitCode::host_oom, "out of host memory"},
                      {ExitCode::wrong_device, "a GPU that cannot be used"}};
  bench.action = [&flags, argv] {
    choose_blas_core(argv);
    trainer::bench({.gpu = flags.gpu,
                    .threads = threads_of(flags.threads),
                    .shape = bench_shape(flags.spec),
                    .json = flags.json},
                   stdout, flags.json ? stderr : stdout);
    return answered(0);
  };
}

void add_print_schedule(cli::Command& program, Flags& flags) {
  cli::Command& schedule =
      program.add_verb("print-schedule", "Print what a step does, on which stream and after what");
  declare_spec(schedule, flags, "The run: a file, or - for stdin; else $TESSERA_SPEC holds it");
  schedule.examples = {{"trainer print-schedule --spec run.1.json", "the step of a run"}};
  schedule.exit_codes = {{ExitCode::spec, "the specification is wrong"}};
  schedule.action = [&flags] { return answered(print_schedule(read_spec(flags.spec))); };
}

void add_measure_peak(cli::Command& program, Flags& flags, char** argv) {
  cli::Command& peak =
      program.add_verb("measure-peak", "Print the rate of f32 matrix products here, as JSON");
  declare_threads(peak, flags);
  peak.examples = {{"trainer measure-peak --threads 8", "what 8 threads reach"}};
  peak.action = [&flags, argv] {
    choose_blas_core(argv);
    return answered(measure_peak(threads_of(flags.threads)));
  };
}

void add_capabilities(cli::Command& program, char** argv) {
  cli::Command& capabilities =
      program.add_verb("capabilities", "Print what this trainer can do, as JSON");
  capabilities.examples = {{"trainer capabilities", "devices, precisions, operations, libraries"}};
  capabilities.action = [argv] {
    choose_blas_core(argv);
    std::cout << trainer::capabilities_json() << "\n";
    return answered(0);
  };
}

void add_pack_bytes(cli::Command& program, Flags& flags) {
  cli::Command& packing =
      program.add_verb("pack-bytes", "Pack text files into a token file, a byte a token");
  packing
      .add_option("files", flags.files,
                  "The token file to write, and the texts to read; - is stdin")
      ->type_name("OUT FILE...")
      ->required();
  packing.examples = {{"trainer pack-bytes corpus.tok *.txt", "257 tokens: bytes, and an end"}};
  packing.exit_codes = {{ExitCode::usage, "the command line is wrong, or OUT is there already"},
                        {ExitCode::interrupted, "interrupted; OUT is not written"}};
  packing.action = [&flags] { return answered(pack(flags.files)); };
}

// Runs the specification, on this rank or as --nproc ranks. Returns the exit code.
int train(const Flags& flags, const std::vector<std::string>& words, char** argv, double start_s) {
  constexpr std::int64_t kMostLocalRanks = 1024;
  const auto ranks = static_cast<int>(
      flags.nproc.empty() ? 1 : require_integer(flags.nproc, "--nproc", 1, kMostLocalRanks));
  if (ranks > 1) return run_ranks(ranks, words, flags.spec);
  choose_blas_core(argv);
  catch_signals();
  const trainer::Place place = trainer::place_of(trainer::process_environment);
  sweep::RunSpec spec = read_spec(flags.spec);
  spec.profile = spec.profile || flags.profile;
  return trainer::run_training(spec, stop_signal, start_s, place);
}

// Declares the command line and does what it asks for.
int run(int argc, char** argv) {
  const double start_s = monotonic_seconds();
  const std::vector<std::string> words = cli::words_of(argc, argv);
  cli::Command program("trainer", "Train one point of a sweep and write its run log");
  program.details =
      "submit starts it with the specification of a run. The log goes into the run's folder, or to "
      "stdout if the specification names none.";
  Flags flags;
  declare_spec(program, flags, "The run: a file, or - for stdin; else $TESSERA_SPEC holds it");
  program.add_option("--nproc", flags.nproc, "Start N ranks of the run on this machine")
      ->type_name("N");
  program.add_flag("--profile", flags.profile,
                   "Measure each operation in three more steps: a table, and in the log");
  program.examples = {{"trainer --spec run.1.json", "the run of a specification that submit wrote"},
                      {"trainer --spec run.1.json --nproc 2", "its two ranks on this machine"}};
  program.shared_exit_codes = {{ExitCode::ok, "done"},
                               {ExitCode::usage, "the command line is wrong"},
                               {ExitCode::failed, "another failure, or not all was printed"}};
  program.exit_codes = {{ExitCode::ok, "all steps done, or ended early as it was told to"},
                        {ExitCode::spec, "the specification or the rank's variables are wrong"},
                        {ExitCode::unsupported, "a setting that this trainer or machine cannot do"},
                        {ExitCode::oom, "out of device memory"},
                        {ExitCode::host_oom, "out of host memory"},
                        {ExitCode::nan, "loss or gradient norm is not finite"},
                        {ExitCode::comm_error, "communication between ranks failed"},
                        {ExitCode::timeout, "no progress, or the time limit is near"},
                        {ExitCode::wrong_device, "another device than expected, or one in use"},
                        {ExitCode::failed, "wrong token file, or another failure"},
                        {ExitCode::log_not_writable, "the run log cannot be written"}};
  program.action = [&] { return train(flags, words, argv, start_s); };
  add_selftest(program, flags, argv);
  add_bench_ops(program, flags, argv);
  add_print_schedule(program, flags);
  add_measure_peak(program, flags, argv);
  add_capabilities(program, argv);
  add_pack_bytes(program, flags);
  cli::add_general_flags(program, cli::CompletionBy::flag);
  return cli::run_command_line(program, words, ExitCode::failed);
}

}  // namespace

int main(int argc, char** argv) {
  return cli::run_program("trainer", ExitCode::failed, ExitCode::failed,
                          [&] { return run(argc, argv); });
}
