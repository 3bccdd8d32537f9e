// SPDX-License-Identifier: Apache-2.0
// A cache of GEMM algorithms: they are timed once for a kind of GPU, and every later run there
// computes the same bits.
//
// One file holds the choices of all GPUs. Each line is a JSON object, sealed like a record of the
// run log:
//
//   {"gemm":1,"gpu":"NVIDIA H200, 132 SMs","cublaslt":"13.1.0","driver":"13.0",
//    "workspace_bytes":67108864,"shape":"m4096 n12288 k4096 nt bf16>bf16 a256",
//    "algorithm":"<128 hexadecimal digits>","us":812.4,"is_first":false,"crc":"89abcdef"}
//
// The file is replaced as a whole, under a lock beside it (FILE.lock), after reading what others
// wrote meanwhile: if two runs choose for the same shape at once, the first to write decides for
// both. If a file system does not lock between hosts, choices may be lost and are timed again; the
// file is never half of one. Nothing here throws: a file that cannot be read, understood or written
// costs a note and the time to choose again.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace tessera::trainer::cuda {

// The machine that a choice holds for. An algorithm's 64 bytes have a meaning only within a version
// of cuBLASLt.
struct GemmMachine {
  std::string gpu;       // name and number of multiprocessors
  std::string cublaslt;  // "13.1.0"
  std::string driver;    // newest CUDA that it runs: "13.0"
  std::int64_t workspace_bytes = 0;
  bool operator==(const GemmMachine&) const = default;
};

struct GemmCacheEntry {
  cublasLtMatmulAlgo_t algorithm{};
  double us = 0;          // median of a launch when it was chosen
  bool is_first = false;  // whether it is the first heuristic
};

// Returns 128 hexadecimal digits, the most significant of each word first.
std::string to_hex(const cublasLtMatmulAlgo_t& algorithm);

// Returns tessera/gemm-v1.jsonl in $XDG_CACHE_HOME or in ~/.cache; empty if neither is known.
std::filesystem::path default_gemm_cache();

class GemmCache {
 public:
  // Reads the file if it exists. An empty path: a cache that keeps nothing.
  GemmCache(std::filesystem::path path, GemmMachine machine);

  // Returns the choice for this machine and shape (to_text), or nullptr.
  const GemmCacheEntry* find(const std::string& shape) const;

  // Forgets what find gave, because it does not run here; add replaces it in the file.
  void reject(const std::string& shape);

  // Keeps new choices by shape. Afterwards find gives those in force, which another run may have
  // made.
  void add(const std::map<std::string, GemmCacheEntry>& entries);

  // One line for each thing that could not be read or kept.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Line {
    GemmMachine machine;
    std::string shape;
    GemmCacheEntry entry;
  };
  struct Content {
    std::vector<Line> lines;
    std::size_t bad_lines = 0;
  };
  Content read() const;
  void take(const Content& content);
  void merge(const std::map<std::string, GemmCacheEntry>& entries);
  static Line parse(const std::string& text);
  static std::string format(const Line& line);

  std::filesystem::path path_;
  GemmMachine machine_;
  std::map<std::string, GemmCacheEntry> entries_;
  std::map<std::string, std::string> rejected_;  // shape to algorithm
  bool has_bad_lines_ = false;
  std::vector<std::string> notes_;
};

// Returns 16 hexadecimal digits for the algorithms in use, by shape: equal digits mean equal bits
// of all GEMMs. It is the 64-bit FNV-1a hash of the machine's GPU and cuBLASLt and of each shape
// and algorithm.
std::string gemm_table_hash(const GemmMachine& machine,
                            const std::map<std::string, cublasLtMatmulAlgo_t>& in_use);

}  // namespace tessera::trainer::cuda
