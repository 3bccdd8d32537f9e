// SPDX-License-Identifier: Apache-2.0
#include "lib/hardware/gpu_type.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <regex>
#include <span>
#include <string>

#include "lib/hardware/driver_name.h"

namespace tessera::hardware {

namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.';
}

// In lower case, every separator as `separator`, without the maker and its brands of whole
// families before it: "tesla_v100" is a v100.
std::string normal(std::string_view text, char separator) {
  std::string result;
  for (const char c : text) {
    result +=
        is_word(c) ? static_cast<char>(std::tolower(static_cast<unsigned char>(c))) : separator;
  }
  for (const std::string_view maker : {"nvidia", "amd", "tesla", "geforce"}) {
    if (result.size() > maker.size() && result.starts_with(maker) &&
        result[maker.size()] == separator)
      result.erase(0, maker.size() + 1);
  }
  return result;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (c != '_') {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

// Words that are left out as often as not: "a6000" is an "rtx_a6000".
bool is_series(const std::string& word) {
  static constexpr std::array<std::string_view, 3> kSeries{"quadro", "rtx", "pro"};
  return std::ranges::find(kSeries, word) != kSeries.end();
}

std::span<const std::string> without_series(std::span<const std::string> words) {
  while (words.size() > 1 && is_series(words.front())) words = words.subspan(1);
  return words;
}

// Whether `rest` is some of the words, in their order, without separators.
bool is_made_of(std::string_view rest, std::span<const std::string> words) {
  if (rest.empty()) return true;
  if (words.empty()) return false;
  return (rest.starts_with(words.front()) &&
          is_made_of(rest.substr(words.front().size()), words.subspan(1))) ||
         is_made_of(rest, words.subspan(1));
}

// The first word must be there, of the others any may be missing: "v100_32gb", "rtx6000".
bool fits_name(std::string_view joined, std::span<const std::string> name) {
  if (joined.empty()) return false;
  for (; !name.empty(); name = name.subspan(1)) {
    if (joined.starts_with(name.front()) &&
        is_made_of(joined.substr(name.front().size()), name.subspan(1)))
      return true;
    if (name.size() == 1 || !is_series(name.front())) return false;
  }
  return false;
}

bool is_called_one_of(const Gpu& gpu, const std::vector<std::string>& names) {
  return std::ranges::any_of(names, [&](const std::string& name) {
    return is_called(gpu, name, LetterCase::does_not_count);
  });
}

}  // namespace

GpuTypeMeaning meaning_of_type(const Catalogue& catalogue, std::string_view type) {
  GpuTypeMeaning meaning;
  const std::string wanted = normal(type, '_');
  if (wanted.empty() || !is_word(wanted.front())) return meaning;
  static const std::regex kSlice(R"((^|_)[0-9]+g\.[0-9]+gb(\.|_|$))");
  meaning.is_slice = std::regex_search(wanted, kSlice);
  if (meaning.is_slice) return meaning;

  // AutoDetect writes the driver's name in lower case with underscores for spaces. With its maker
  // it is whole: nothing else needs to be tried.
  std::string spaced(type);
  std::ranges::replace(spaced, '_', ' ');
  if (normal(spaced, ' ').size() < spaced.size()) {
    for (const Gpu& gpu : catalogue.gpus) {
      if (is_called_one_of(gpu, {spaced})) meaning.entries.push_back(&gpu);
    }
    if (!meaning.entries.empty()) return meaning;
  }

  // People leave the maker out, and write dashes for either.
  std::vector<std::string> driver_names;
  for (const std::string& form : {spaced, normal(type, ' '), normal(type, '-')})
    driver_names.insert(driver_names.end(), {form, "NVIDIA " + form});
  const std::vector<std::string> words = words_of(wanted);
  std::string joined;  // but "rtx" alone names no card
  if (!std::ranges::all_of(words, is_series)) {
    for (const std::string& word : words) joined += word;
  }
  for (const Gpu& gpu : catalogue.gpus) {
    const std::vector<std::string> name = words_of(normal(gpu.name, '_'));
    if (is_called_one_of(gpu, driver_names) || fits_name(joined, name))
      meaning.entries.push_back(&gpu);
    if (!name.empty() && without_series(name).front() == without_series(words).front())
      meaning.relatives.push_back(&gpu);
  }
  if (!meaning.entries.empty()) meaning.relatives.clear();
  return meaning;
}

}  // namespace tessera::hardware
