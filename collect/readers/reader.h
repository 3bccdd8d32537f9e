// SPDX-License-Identifier: Apache-2.0
// The interface of a reader of run logs, ours or another trainer's.
//
// To add one:
//
// 1. collect/readers/NAME.h declares `const Reader& NAME_reader()`, NAME.cpp defines it, and
//    collect/CMakeLists.txt names the source.
// 2. The table in readers.cpp gets one line. Order decides where two readers recognise a file: the
//    first is taken.
// 3. A test beside tests/collect/readers_test.cpp reads a real log of that trainer from tests/data,
//    whole, cut anywhere and with foreign lines in it, and compares each row with figures that
//    something else than the reader computed.
//
// Then `collect FOLDER` finds such logs below a folder by their content, `collect --logs FILE`
// reads them, and rows say whose they are in the columns engine and reader.
//
// What `read` must give, and collect builds rows from (lib/runlog/reader.h):
//
// * A runlog::Log for each run and rank in the file, never two runs in one. The rank with
//   origin.rank 0 gives the row; another rank's log gives its events alone.
// * origin.id tells points apart: rows of one project and id are repeats of one point and are put
//   together. Where the log tells all that a sweep::Point holds, it is sweep::point_id of that
//   point; else 12 hex digits of a hash of every setting that the log tells. A log without an id
//   gives no row.
// * origin.run and origin.project may be empty: so are those cells, and the log's path tells whose
//   row it is.
// * facts: what the run did, as far as the log says so, in the units of lib/runlog/facts.h. What it
//   does not say stays empty, and so do the cells; nothing is guessed, and what was asked for is
//   not what ran.
// * footer: only where the log says how the run ended, with figures over the measured steps. If
//   there is none, `steps` has every step, warm-up marked, and collect computes what it can: the
//   status is then partial at best.
// * header["point"], if there: the point as JSON. Its id must be origin.id.
// * LogFile::damaged and foreign count lines that were left out: collect tells the user.
#pragma once

#include <filesystem>
#include <string_view>

#include "lib/runlog/reader.h"

namespace tessera::collect {

// Bytes of a file that recognises() is shown: the first ones, cut anywhere.
inline constexpr std::size_t kHeadBytes = 4096;

struct Reader {
  std::string_view engine;  // the trainer: "tessera"
  std::string_view name;    // with the version of what it reads: "tessera 1"

  // Tells whether a file that begins with `head` is such a log. It is asked about every file below
  // the folders that collect is given, so it must be quick and sure: it says no to text that merely
  // mentions the trainer. Pure; any thread.
  bool (*recognises)(std::string_view head);

  // Reads the whole file, or with Depth::row as much of it as a row needs. A file that is none of
  // its logs gives no Log. Error(io) if the file cannot be read. Any thread.
  runlog::LogFile (*read)(const std::filesystem::path& path, runlog::Depth depth);
};

}  // namespace tessera::collect
