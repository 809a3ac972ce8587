// Random messages: every field random, and valid as far as the codec asks for it.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/wire/reflect.h"
#include "weightbus/base/prng.h"
#include "weightbus/protocol/journal.h"
#include "weightbus/protocol/messages.h"
#include "weightbus/wire/enums.h"

namespace weightbus::wire::testing {

class Random {
 public:
  explicit Random(std::uint64_t seed) : prng_(seed) {}

  template <class T>
  T make() {
    if constexpr (std::is_same_v<T, bool>) {
      return prng_.chance(50);
    } else if constexpr (std::is_enum_v<T>) {
      return enumerant<T>();
    } else if constexpr (std::is_integral_v<T>) {
      // The ends as often as all between.
      if (prng_.chance(10)) return std::numeric_limits<T>::max();
      if (prng_.chance(10)) return std::numeric_limits<T>::min();
      return static_cast<T>(prng_.next());
    } else if constexpr (std::is_same_v<T, std::string>) {
      return text();
    } else if constexpr (std::is_same_v<T, model::Dims>) {
      return dims(prng_.below(model::kMaxDims + 1));
    } else if constexpr (IsTagged<T>) {
      return T(make<typename T::rep>());
    } else if constexpr (IsVector<T>) {
      T values;
      for (auto left = prng_.below(4); left > 0; --left)
        values.push_back(make<typename T::value_type>());
      return values;
    } else if constexpr (IsOptional<T>) {
      if (prng_.chance(30)) return std::nullopt;
      return make<typename T::value_type>();
    } else if constexpr (IsVariant<T>) {
      return alternative<T>(prng_.below(std::variant_size_v<T>));
    } else if constexpr (IsPair<T>) {
      auto first = make<typename T::first_type>();
      return T{std::move(first), make<typename T::second_type>()};
    } else {
      return ranked(aggregate<T>());
    }
  }

  // A variant that holds its alternative number `index`.
  template <class V, std::size_t I = 0>
  V alternative(std::size_t index) {
    if constexpr (I + 1 < std::variant_size_v<V>) {
      if (index != I) return alternative<V, I + 1>(index);
    }
    return V(std::in_place_index<I>, make<std::variant_alternative_t<I, V>>());
  }

  std::uint64_t below(std::uint64_t bound) { return prng_.below(bound); }

 private:
  template <class E>
  E enumerant() {
    for (;;) {
      const auto value = static_cast<E>(prng_.below(32));
      if (is_known(value)) return value;
    }
  }

  std::string text() {
    static const char* const kPieces[] = {"model.layers.", "0", ".weight", "ä", "重", "🚍", " ", "\n"};
    std::string made;
    for (auto left = prng_.below(6); left > 0; --left)
      made += kPieces[prng_.below(std::size(kPieces))];
    return made;
  }

  model::Dims dims(std::size_t rank) {
    model::Dims made;
    for (std::size_t i = 0; i < rank; ++i)
      made.push_back(make<std::int64_t>());
    return made;
  }

  template <class T>
  T aggregate() {
    using Fields = decltype(fields(std::declval<T&>()));
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return T{make<std::remove_cvref_t<std::tuple_element_t<I, Fields>>>()...};
    }
    (std::make_index_sequence<std::tuple_size_v<Fields>>());
  }

  // The codec wants equal ranks inside a box, and of a box and its strides.
  template <class T>
  T ranked(T value) {
    const auto fit = [&](model::Box& box) { box.offset = dims(box.extent.size()); };
    if constexpr (std::is_same_v<T, model::Box>) {
      fit(value);
    } else if constexpr (std::is_same_v<T, model::Shard> || std::is_same_v<T, model::Slot>) {
      value.at.strides = dims(value.box.extent.size());
    } else if constexpr (std::is_same_v<T, plan::Fragment>) {
      value.from.strides = dims(value.box.extent.size());
      value.to.strides = dims(value.box.extent.size());
    } else if constexpr (std::is_same_v<T, plan::DigestUnit>) {
      value.from.strides = dims(value.box.extent.size());
    }
    return value;
  }

  base::Prng prng_;
};

}  // namespace weightbus::wire::testing
