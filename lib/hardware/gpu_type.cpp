#include "lib/hardware/gpu_type.h"

#include <algorithm>
#include <cctype>
#include <regex>
#include <string>

namespace tessera::hardware {

namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.';
}

// In lower case, every separator as `separator`, without the maker before it.
std::string normal(std::string_view text, char separator) {
  std::string result;
  for (const char c : text) {
    result +=
        is_word(c) ? static_cast<char>(std::tolower(static_cast<unsigned char>(c))) : separator;
  }
  for (const std::string_view maker : {"nvidia", "amd"}) {
    if (result.size() > maker.size() && result.starts_with(maker) &&
        result[maker.size()] == separator)
      result.erase(0, maker.size() + 1);
  }
  return result;
}

bool holds(const std::vector<std::string>& patterns, const std::string& text) {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) {
    return std::regex_search(text, std::regex(pattern, std::regex::ECMAScript | std::regex::icase));
  });
}

std::vector<const Gpu*> called_so(const Catalogue& catalogue,
                                  const std::vector<std::string>& driver_names) {
  std::vector<const Gpu*> found;
  for (const Gpu& gpu : catalogue.gpus) {
    if (std::ranges::any_of(driver_names, [&](const std::string& name) {
          return holds(gpu.match, name) && !holds(gpu.not_match, name);
        }))
      found.push_back(&gpu);
  }
  return found;
}

std::vector<const Gpu*> by_driver_name(const Catalogue& catalogue, std::string_view type) {
  std::string spaced(type);
  std::ranges::replace(spaced, '_', ' ');
  // AutoDetect writes the driver's name in lower case with underscores for spaces. With its maker
  // it is whole: nothing else needs to be tried.
  if (normal(spaced, ' ').size() < spaced.size()) {
    std::vector<const Gpu*> found = called_so(catalogue, {spaced});
    if (!found.empty()) return found;
  }
  // People leave the maker out, and write dashes for either.
  std::vector<std::string> names;
  for (const std::string& form : {spaced, normal(type, ' '), normal(type, '-')})
    names.insert(names.end(), {form, "NVIDIA " + form});
  return called_so(catalogue, names);
}

}  // namespace

GpuTypeMeaning meaning_of_type(const Catalogue& catalogue, std::string_view type) {
  GpuTypeMeaning meaning;
  const std::string wanted = normal(type, '_');
  if (wanted.empty() || !is_word(wanted.front())) return meaning;
  static const std::regex kSlice(R"((^|_)[0-9]+g\.[0-9]+gb(\.|_|$))");
  meaning.is_slice = std::regex_search(wanted, kSlice);
  if (meaning.is_slice) return meaning;
  meaning.entries = by_driver_name(catalogue, type);
  if (!meaning.entries.empty()) return meaning;
  const std::string first = wanted.substr(0, wanted.find('_'));
  for (const Gpu& gpu : catalogue.gpus) {
    const std::string name = normal(gpu.name, '_');
    if (name == wanted || name.starts_with(wanted + '_')) meaning.entries.push_back(&gpu);
    if (name.substr(0, name.find('_')) == first) meaning.relatives.push_back(&gpu);
  }
  if (!meaning.entries.empty()) meaning.relatives.clear();
  return meaning;
}

}  // namespace tessera::hardware
