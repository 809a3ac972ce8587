// Name patterns of layouts.
#include "weightbus/model/layout.h"

namespace weightbus::model {
namespace {

// A pattern is cut into literals and holes once, so that matching need not look at braces again.
struct Token {
  enum class Kind { kLiteral, kStar, kWord } kind;
  std::string_view text;  // the literal, or the placeholder's word
};

std::vector<Token> tokenize(std::string_view pattern) {
  std::vector<Token> tokens;
  std::size_t literal = 0;
  const auto flush = [&](std::size_t end) {
    if (end > literal) tokens.push_back({Token::Kind::kLiteral, pattern.substr(literal, end - literal)});
  };
  for (std::size_t at = 0; at < pattern.size();) {
    const auto close = pattern[at] == '{' ? pattern.find('}', at) : std::string_view::npos;
    if (pattern[at] == '*') {
      flush(at);
      tokens.push_back({Token::Kind::kStar, {}});
      literal = ++at;
    } else if (close != std::string_view::npos) {
      flush(at);
      tokens.push_back({Token::Kind::kWord, pattern.substr(at + 1, close - at - 1)});
      literal = at = close + 1;
    } else {
      ++at;
    }
  }
  flush(pattern.size());
  return tokens;
}

// Tries hole lengths from the shortest. `steps` bounds the work whatever the pattern: layout files come from outside.
bool match_from(std::span<const Token> tokens, std::string_view name, Captures& captures, std::uint32_t& steps) {
  if (steps == 0) return false;
  --steps;
  if (tokens.empty()) return name.empty();
  const auto& token = tokens.front();
  const auto rest = tokens.subspan(1);
  if (token.kind == Token::Kind::kLiteral) {
    return name.starts_with(token.text) && match_from(rest, name.substr(token.text.size()), captures, steps);
  }
  const bool is_word = token.kind == Token::Kind::kWord;
  for (std::size_t length = is_word ? 1 : 0; length <= name.size(); ++length) {
    if (is_word && name[length - 1] == '.') return false;
    if (!rest.empty() && rest.front().kind == Token::Kind::kLiteral &&
        !name.substr(length).starts_with(rest.front().text)) {
      continue;
    }
    if (!is_word) {
      if (match_from(rest, name.substr(length), captures, steps)) return true;
      continue;
    }
    const auto [at, added] = captures.try_emplace(std::string(token.text), name.substr(0, length));
    if (!added && at->second != name.substr(0, length)) continue;
    if (match_from(rest, name.substr(length), captures, steps)) return true;
    if (added) captures.erase(at);
  }
  return false;
}

}  // namespace

std::optional<Captures> match_pattern(std::string_view pattern, std::string_view name) {
  const auto hole = pattern.find_first_of("*{");
  // Most patterns fail on their first characters.
  if (name.substr(0, hole) != pattern.substr(0, hole)) return std::nullopt;
  Captures captures;
  std::uint32_t steps = 100'000;
  if (!match_from(tokenize(pattern), name, captures, steps)) return std::nullopt;
  return captures;
}

}  // namespace weightbus::model
