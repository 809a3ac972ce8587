#include "weightbus/model/strict_json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

namespace weightbus::model {
namespace {

// Thrown through the parser, which has no other way to be stopped, and caught below.
struct Refused {
  std::string reason;
};

}  // namespace

base::Result<nlohmann::json> parse_strict_json(std::string_view text, std::size_t max_depth) {
  std::vector<std::set<std::string>> keys;  // of every open object
  const auto watch = [&](int, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      if (keys.size() == max_depth) throw Refused{fmt::format("nested deeper than {} levels", max_depth)};
      keys.emplace_back();
    } else if (event == Event::object_end || event == Event::array_end) {
      keys.pop_back();
    } else if (event == Event::key) {
      auto name = value.get<std::string>();
      if (!keys.back().insert(name).second) throw Refused{fmt::format("{} is listed twice", printable(name))};
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text.begin(), text.end(), watch);
  } catch (const Refused& refused) {
    return base::fail(base::ErrorCode::kCorrupted, "{}", refused.reason);
  } catch (const nlohmann::json::exception& error) {
    return base::fail(base::ErrorCode::kCorrupted, "not valid JSON: {}", json_error_text(error.what()));
  }
}

std::string printable(std::string_view name) {
  constexpr std::size_t kLongest = 200;
  std::string text;
  for (const char c : name.substr(0, kLongest)) {
    text += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  if (name.size() <= kLongest) return text;
  // Not in the middle of a UTF-8 sequence.
  while (!text.empty() && (static_cast<unsigned char>(name[text.size()]) & 0xc0) == 0x80)
    text.pop_back();
  return text + "...";
}

std::string json_error_text(std::string_view what) {
  if (const auto prefix = what.find("] "); prefix != std::string_view::npos) what.remove_prefix(prefix + 2);
  // What was read last may be anything, and a message must stay text.
  if (const auto last_read = what.find("; last read"); last_read != std::string_view::npos)
    what = what.substr(0, last_read);
  return printable(what);
}

}  // namespace weightbus::model
