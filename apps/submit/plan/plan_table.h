// SPDX-License-Identifier: Apache-2.0
// Prints plans: a table for people, JSON for programs.
#pragma once

#include <string>

#include "apps/submit/plan/plan.h"

namespace tessera::apps {

// The settings in which all points agree, then a row for each point with its model, id and the
// settings that vary (lib/base/terminal.h). 40 points, then counts per axis; `all_rows`: every
// point. Drops with their reasons at the end, then how to go on: with --RUN, or what it would
// refuse
// (`obstacle`, empty if nothing). Lines have at most `width` characters.
std::string plan_table(const Plan& plan, bool all_rows, const std::string& obstacle,
                       std::size_t width);

// The drops by reason, each a paragraph; the first ten of a reason unless `all_rows`. "" if none
// is.
std::string drop_lines(const Plan& plan, bool all_rows, std::size_t width);

// {"points":[{"id","label","slug","microbatch" (what an automatic one
// became),"point"}],"dropped":[{"reason","detail","label","values"}]}, one point or drop a line.
std::string plan_json(const Plan& plan);

// "3 dropped: 2 batch, 1 cluster", or "" if none is.
std::string drop_summary(const Plan& plan);

}  // namespace tessera::apps
