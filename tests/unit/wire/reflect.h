// The fields of aggregates, found by the compiler: random values and deep comparison for every message without a list
// of its fields. A field that is added to a message is thereby generated and compared, and a codec that forgets it
// fails.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "weightbus/base/tagged.h"
#include "weightbus/model/box.h"
#include "weightbus/protocol/messages.h"

namespace weightbus::wire::testing {

template <template <class...> class Template, class T>
struct IsInstance : std::false_type {};
template <template <class...> class Template, class... Args>
struct IsInstance<Template, Template<Args...>> : std::true_type {};
template <class T>
concept IsVector = IsInstance<std::vector, T>::value;
template <class T>
concept IsOptional = IsInstance<std::optional, T>::value;
template <class T>
concept IsVariant = IsInstance<std::variant, T>::value;
template <class T>
concept IsPair = IsInstance<std::pair, T>::value;
template <class T>
concept IsTagged = IsInstance<base::Tagged, T>::value;
template <class T>
concept IsScalar = std::is_integral_v<T> || std::is_enum_v<T>;

// Stands for the initialiser of any field. std::optional takes it in two ways unless one is no template, so each
// optional that a message holds is named here; without that, fields() does not compile.
struct Any {
  template <class T>
  operator T() const;  // NOLINT: implicit on purpose
  operator std::optional<model::WeightVersion>() const;
  operator std::optional<model::UpdateId>() const;
  operator std::optional<model::SinkManifest>() const;
  operator std::optional<base::Error>() const;
  operator std::optional<protocol::Tag>() const;
  operator std::optional<protocol::UpdateStatus>() const;
  operator std::optional<protocol::PlanReport>() const;
};

inline constexpr std::size_t kMaxFields = 16;

// The number of fields of an aggregate: the most that can be initialised.
template <class T, std::size_t N = kMaxFields + 1>
consteval std::size_t field_count() {
  constexpr bool kFits = []<std::size_t... I>(std::index_sequence<I...>) {
    return requires { T{(static_cast<void>(I), Any{})...}; };
  }
  (std::make_index_sequence<N>());
  if constexpr (kFits || N == 0) {
    return N;
  } else {
    return field_count<T, N - 1>();
  }
}

// References to all fields.
template <class T>
auto fields(T& value) {
  constexpr std::size_t kCount = field_count<std::remove_const_t<T>>();
  static_assert(kCount <= kMaxFields, "add a case for larger structs");
#define WB_FIELDS(n, ...)             \
  else if constexpr (kCount == (n)) { \
    auto& [__VA_ARGS__] = value;      \
    return std::tie(__VA_ARGS__);     \
  }
  if constexpr (kCount == 0) return std::tuple<>();
  WB_FIELDS(1, a)
  WB_FIELDS(2, a, b)
  WB_FIELDS(3, a, b, c)
  WB_FIELDS(4, a, b, c, d)
  WB_FIELDS(5, a, b, c, d, e)
  WB_FIELDS(6, a, b, c, d, e, f)
  WB_FIELDS(7, a, b, c, d, e, f, g)
  WB_FIELDS(8, a, b, c, d, e, f, g, h)
  WB_FIELDS(9, a, b, c, d, e, f, g, h, i)
  WB_FIELDS(10, a, b, c, d, e, f, g, h, i, j)
  WB_FIELDS(11, a, b, c, d, e, f, g, h, i, j, k)
  WB_FIELDS(12, a, b, c, d, e, f, g, h, i, j, k, l)
  WB_FIELDS(13, a, b, c, d, e, f, g, h, i, j, k, l, m)
  WB_FIELDS(14, a, b, c, d, e, f, g, h, i, j, k, l, m, n)
  WB_FIELDS(15, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o)
  WB_FIELDS(16, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)
#undef WB_FIELDS
}

template <class T>
bool equal(const T& a, const T& b) {
  if constexpr (IsScalar<T> || std::is_same_v<T, std::string> || std::is_same_v<T, model::Dims> || IsTagged<T>) {
    return a == b;
  } else if constexpr (IsVector<T>) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (!equal(a[i], b[i])) return false;
    }
    return true;
  } else if constexpr (IsOptional<T>) {
    return a.has_value() == b.has_value() && (!a || equal(*a, *b));
  } else if constexpr (IsVariant<T>) {
    return a.index() == b.index() &&
           std::visit([&](const auto& x) { return equal(x, std::get<std::decay_t<decltype(x)>>(b)); }, a);
  } else if constexpr (IsPair<T>) {
    return equal(a.first, b.first) && equal(a.second, b.second);
  } else {
    const auto left = fields(a);
    const auto right = fields(b);
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return (equal(std::get<I>(left), std::get<I>(right)) && ...);
    }
    (std::make_index_sequence<std::tuple_size_v<decltype(left)>>());
  }
}

}  // namespace weightbus::wire::testing
