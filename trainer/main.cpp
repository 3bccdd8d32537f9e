// The program `trainer`: trains one point and writes its run log. Exit codes: docs/exit-codes.md.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
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
#include "lib/base/version.h"
#include "lib/cli/cli_error.h"
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

// Of any point, whether this trainer can run it or not: a schedule is the same value everywhere.
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

int pack(const std::vector<std::string>& files) {
  if (files.front() == "-")
    throw Error(ExitCode::usage, "--pack-bytes", "OUT is a file: its header is written last");
  catch_signals();
  const trainer::Packed packed =
      trainer::pack_bytes(files.front(), std::span(files).subspan(1), stderr, stop_signal);
  std::cout << fmt::format("{}: {} tokens, {} bytes, vocabulary {}\n", files.front(), packed.tokens,
                           packed.bytes, trainer::kByteVocab);
  return static_cast<int>(ExitCode::ok);
}

// Of the model and microbatch that a specification names, else of MPT's 125m.
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

int check_device(const std::vector<std::string>& names, trainer::SelftestOptions options) {
  for (const std::string& name : names) {
    const auto part = from_text<trainer::SelftestPart>(name);
    if (!part)
      throw Error(ExitCode::usage, "--parts", fmt::format("'{}' is no part of it", name),
                  suggestion(name, all_names<trainer::SelftestPart>()));
    const bool needs_gpu =
        *part == trainer::SelftestPart::attention || *part == trainer::SelftestPart::training;
    if (needs_gpu && !options.gpu)
      throw Error(ExitCode::usage, "--parts", fmt::format("{} compares a GPU", name), "--gpu");
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
int run_ranks(int ranks, int argc, char** argv, const std::string& spec_from) {
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
  std::vector<std::string> command{std::filesystem::read_symlink("/proc/self/exe").string()};
  const std::span<char*> words(argv, static_cast<std::size_t>(argc));
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string_view word = words[i];
    const bool is_stdin = spec_from == "-" && (word == "--spec" || word == "--spec=-");
    if (word == "--nproc" || (is_stdin && word == "--spec")) ++i;  // its value goes with it
    if (word != "--nproc" && !word.starts_with("--nproc=") && !is_stdin) command.emplace_back(word);
  }
  catch_signals();
  return trainer::run_local_ranks(ranks, command, stop_signal);
}

int run(int argc, char** argv) {
  const double start_s = monotonic_seconds();
  CLI::App app(
      "Trains one point of a sweep and writes its run log.\n"
      "Exit codes: 0 done, 10 specification, 11 unsupported setting, 12/13 out of memory, "
      "14 not finite,\n15 communication, 16 time limit, 17 other device than expected, 18 failed, "
      "19 log not "
      "writable "
      "(docs/exit-codes.md).",
      "trainer");
  std::string spec;
  std::string threads = "1";
  app.add_option("--spec", spec,
                 "run specification: a file, or - for stdin; else $TESSERA_SPEC holds it")
      ->type_name("FILE");
  bool capabilities = false;
  bool peak = false;
  std::vector<std::string> pack_files;
  constexpr int kMostFiles = 1 << 20;
  app.add_option("--pack-bytes", pack_files,
                 "pack text files (- is stdin) into the token file OUT, a byte a token")
      ->type_name("OUT FILE...")
      ->expected(2, kMostFiles);
  bool profile = false;
  app.add_flag("--capabilities", capabilities, "print what this trainer can do, as JSON");
  app.add_flag("--measure-peak", peak, "print the rate of f32 matrix products here, as JSON");
  app.add_flag("--profile", profile,
               "behind the measured steps, measure each operation of three more: a table and the "
               "run log");
  std::string nproc;
  app.add_option("--nproc", nproc, "start N ranks of this run on this machine")->type_name("N");
  bool schedule = false;
  app.add_flag("--print-schedule", schedule,
               "print what a step of the specification does, on which stream and after what");
  bool bench = false;
  bool json = false;
  app.add_flag("--bench-ops", bench,
               "measure each operation beside a plain copy and a plain matrix product; sizes of "
               "--spec's model and microbatch, else of MPT's 125m");
  app.add_flag("--json", json, "of --bench-ops: JSON on stdout, the table on stderr");
  bool selftest = false;
  std::vector<std::string> parts;
  constexpr int kSelftestParts = 4;
  app.add_flag("--selftest", selftest,
               "check what the device computes; exit code 18 if something is wrong");
  app.add_option("--parts", parts,
                 "of --selftest: attention, operations, training, bits (default: all it has)")
      ->expected(1, kSelftestParts);
  bool on_gpu = false;
  bool small = false;
  app.add_flag("--gpu", on_gpu, "of --selftest and --bench-ops: the GPU instead of the CPU");
  app.add_flag("--small", small, "of --selftest: small cases alone");
  int from = 0;
  app.add_option("--from", from,
                 "of --selftest with one of --parts attention and operations: number of the first "
                 "case, as told on stderr");
  auto* threads_flag = app.add_option(
      "--threads", threads, "threads of --measure-peak, --bench-ops and --selftest (default 1)");
  app.set_version_flag("--version", version_line("trainer"));
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    app.exit(asked);
    cli::require_printed(ExitCode::failed);
    return 0;
  } catch (const CLI::ParseError& error) {
    throw cli::command_line_error(app, error);
  }
  cli::refuse_empty_values(app);
  if (!threads_flag->empty() && !peak && !bench && !selftest)
    throw Error(ExitCode::usage, "--threads",
                "goes with --measure-peak, --bench-ops and --selftest",
                "the run specification says a run's threads");
  // One question at a time.
  const std::pair<bool, const char*> questions[] = {{!pack_files.empty(), "--pack-bytes"},
                                                    {schedule, "--print-schedule"},
                                                    {bench, "--bench-ops"},
                                                    {selftest, "--selftest"},
                                                    {peak, "--measure-peak"},
                                                    {capabilities, "--capabilities"},
                                                    {profile, "--profile"}};
  const char* asked = nullptr;
  for (const auto& [is_asked, name] : questions) {
    if (!is_asked) continue;
    if (asked != nullptr)
      throw Error(ExitCode::usage, name, fmt::format("does not go with {}", asked),
                  "one at a time");
    asked = name;
  }
  if (json && !bench) throw Error(ExitCode::usage, "--json", "goes with --bench-ops");
  if (on_gpu && !bench && !selftest)
    throw Error(ExitCode::usage, "--gpu", "goes with --selftest and --bench-ops",
                "the run specification says a run's device");
  if ((small || !parts.empty()) && !selftest)
    throw Error(ExitCode::usage, small ? "--small" : "--parts", "goes with --selftest");
  if (app.count("--from") > 0) {
    if (from < 1) throw Error(ExitCode::usage, "--from", fmt::format("{}: 1 or more", from));
    if (!selftest || parts.size() != 1 || (parts[0] != "attention" && parts[0] != "operations"))
      throw Error(ExitCode::usage, "--from", "goes with --selftest and one part",
                  "--parts attention or --parts operations");
  }
  if (!spec.empty() && (!pack_files.empty() || peak || capabilities || selftest))
    throw Error(ExitCode::usage, "--spec", fmt::format("does not go with {}", asked));
  if (!nproc.empty() && asked != nullptr && !profile)
    throw Error(ExitCode::usage, "--nproc", fmt::format("does not go with {}", asked),
                "it goes with a run");
  constexpr std::int64_t kMostLocalRanks = 1024;
  const auto local_ranks =
      static_cast<int>(nproc.empty() ? 1 : require_integer(nproc, "--nproc", 1, kMostLocalRanks));
  if (local_ranks > 1) return run_ranks(local_ranks, argc, argv, spec);
  // What a run prints is for people alone: its log says all. An answer is what was asked for.
  const auto answered = [](int code) {
    if (code == 0) cli::require_printed(ExitCode::failed);
    return code;
  };
  if (!pack_files.empty()) return answered(pack(pack_files));
  if (schedule) return answered(print_schedule(read_spec(spec)));
  choose_blas_core(argv);
  if (capabilities) {
    std::cout << trainer::capabilities_json() << "\n";
    return answered(0);
  }
  if (peak) return answered(measure_peak(threads_of(threads)));
  if (bench) {
    trainer::bench(
        {.gpu = on_gpu, .threads = threads_of(threads), .shape = bench_shape(spec), .json = json},
        stdout, json ? stderr : stdout);
    return answered(0);
  }
  if (selftest) {
    return answered(check_device(parts, {.gpu = on_gpu,
                                         .threads = threads_of(threads),
                                         .parts = {},
                                         .small = small,
                                         .from = std::max(from, 1)}));
  }
  catch_signals();
  const trainer::Place place = trainer::place_of(trainer::process_environment);
  sweep::RunSpec run_spec = read_spec(spec);
  run_spec.profile = run_spec.profile || profile;
  return trainer::run_training(run_spec, stop_signal, start_s, place);
}

}  // namespace

int main(int argc, char** argv) {
  return cli::run_program("trainer", ExitCode::failed, [&] { return run(argc, argv); });
}
