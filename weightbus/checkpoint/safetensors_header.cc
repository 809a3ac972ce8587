// The header of a safetensors file, read event by event: duplicate names are seen, and no tree is built of a hostile
// one.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

#include "weightbus/base/checked_math.h"
#include "weightbus/checkpoint/safetensors.h"
#include "weightbus/model/strict_json.h"

namespace weightbus::checkpoint {
namespace {

using base::ErrorCode;

// Where the reader stands. The format has four levels at most: header, tensor, list, number.
enum class Place { kStart, kHeader, kMetadata, kTensor, kShape, kOffsets, kEnd };

class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<TensorEntry> entries;
  std::optional<base::Error> error;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("true or false"); }
  bool number_integer(number_integer_t value) override { return unexpected(std::to_string(value).c_str()); }
  bool number_float(number_float_t, const string_t& text) override { return unexpected(text.substr(0, 40).c_str()); }
  bool binary(binary_t&) override { return unexpected("binary"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape) {
      const auto extent = base::checked_cast<std::int64_t>(value);
      if (!extent) return refuse("tensor {}: an extent of {} is too large", quoted(), value);
      if (entry_.spec.shape.size() == model::kMaxDims) {
        return refuse("tensor {}: more than {} dimensions", quoted(), model::kMaxDims);
      }
      entry_.spec.shape.push_back(*extent);
      return true;
    }
    if (place_ == Place::kOffsets) {
      if (offsets_ == 2) return refuse("tensor {}: data_offsets has more than two numbers", quoted());
      (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
      return true;
    }
    return unexpected("a number");
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) return true;
    if (place_ != Place::kTensor || field_ != "dtype") return unexpected("a string");
    const auto dtype = model::parse_dtype(value);
    if (!dtype) {
      error = base::Error{ErrorCode::kUnsupported,
                          fmt::format("tensor {}: dtype {} is not known here", quoted(), model::printable(value))};
      return false;
    }
    entry_.spec.dtype = *dtype;
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kHeader;
      return true;
    }
    if (place_ != Place::kHeader) return unexpected("an object");
    place_ = entry_.spec.name == "__metadata__" ? Place::kMetadata : Place::kTensor;
    fields_.clear();
    entry_.spec.shape = {};
    offsets_ = 0;
    return true;
  }

  bool key(string_t& value) override {
    if (place_ == Place::kHeader) {
      if (value.size() > kMaxTensorNameBytes) {
        return refuse("a tensor name is {} bytes long; at most {} are allowed", value.size(), kMaxTensorNameBytes);
      }
      if (!names_.insert(value).second) return refuse("tensor {} is listed twice", model::printable(value));
      entry_.spec.name = value;
      return true;
    }
    if (place_ == Place::kTensor && value != "dtype" && value != "shape" && value != "data_offsets") {
      return refuse("tensor {}: unknown field {}", quoted(), model::printable(value));
    }
    if (!fields_.insert(value).second) {
      return refuse("{}: field {} is listed twice", quoted(), model::printable(value));
    }
    field_ = value;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      if (fields_.size() != 3) return refuse("tensor {}: it needs dtype, shape and data_offsets", quoted());
      if (offsets_ != 2) return refuse("tensor {}: data_offsets needs two numbers", quoted());
      entries.push_back(entry_);
    }
    place_ = place_ == Place::kHeader ? Place::kEnd : Place::kHeader;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::kTensor && field_ == "shape") {
      place_ = Place::kShape;
    } else if (place_ == Place::kTensor && field_ == "data_offsets") {
      place_ = Place::kOffsets;
    } else {
      return unexpected("a list");
    }
    return true;
  }

  bool end_array() override {
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& reason) override {
    error = base::Error{ErrorCode::kCorrupted, fmt::format("the header is not valid JSON at byte {}: {}", position,
                                                           model::json_error_text(reason.what()))};
    return false;
  }

 private:
  std::string quoted() const { return model::printable(entry_.spec.name); }
  template <class... Args>
  bool refuse(fmt::format_string<Args...> format, Args&&... args) {
    error = base::Error{ErrorCode::kCorrupted, fmt::format(format, std::forward<Args>(args)...)};
    return false;
  }
  bool unexpected(const char* what) {
    if (place_ == Place::kStart) return refuse("the header is {}, not an object", what);
    return refuse("tensor {}: {} where the format has none", quoted(), what);
  }

  Place place_ = Place::kStart;
  TensorEntry entry_{{"", model::DType::kU8, {}}, 0, 0};
  std::string field_;
  int offsets_ = 0;
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> fields_;
};

// Every tensor's bytes are as many as its shape and dtype say, and all together cover the data once.
base::Status check_data(const std::vector<TensorEntry>& entries, std::uint64_t data_bytes) {
  std::uint64_t covered = 0;
  for (const auto& entry : entries) {
    const auto name = model::printable(entry.spec.name);
    const auto bytes = tensor_bytes(entry.spec);
    if (!bytes) {
      return base::fail(ErrorCode::kCorrupted, "tensor {}: the size of shape {} overflows", name,
                        model::to_string(entry.spec.shape));
    }
    if (entry.begin > entry.end || entry.end > data_bytes) {
      return base::fail(ErrorCode::kCorrupted, "tensor {}: bytes {} to {} are not inside the file's {} bytes of data",
                        name, entry.begin, entry.end, data_bytes);
    }
    if (entry.end - entry.begin != *bytes) {
      return base::fail(ErrorCode::kCorrupted, "tensor {}: {} bytes of data, but {} of {} need {}", name,
                        entry.end - entry.begin, model::dtype_name(entry.spec.dtype),
                        model::to_string(entry.spec.shape), *bytes);
    }
    if (entry.begin != covered) {
      return base::fail(ErrorCode::kCorrupted,
                        "tensor {}: its data begins at byte {}, {} the end of the one before ({})", name, entry.begin,
                        entry.begin < covered ? "overlapping" : "leaving a gap after", covered);
    }
    covered = entry.end;
  }
  if (covered != data_bytes) {
    return base::fail(ErrorCode::kCorrupted, "the last {} bytes of data belong to no tensor", data_bytes - covered);
  }
  return {};
}

}  // namespace

std::optional<std::uint64_t> tensor_bytes(const model::TensorSpec& spec) noexcept {
  // Strides are products of extents too, even where another extent is 0: they must not overflow either.
  model::Dims at_least_one;
  for (const auto extent : spec.shape)
    at_least_one.push_back(extent == 0 ? 1 : extent);
  const auto volume = model::checked_volume(at_least_one);
  if (!volume) return std::nullopt;
  const auto bytes = base::checked_mul<std::uint64_t>(*volume, model::dtype_size(spec.dtype));
  if (!bytes || !base::checked_cast<std::int64_t>(*bytes)) return std::nullopt;
  return at_least_one == spec.shape ? *bytes : 0;
}

base::Result<std::vector<TensorEntry>> parse_header(std::string_view header_json, std::uint64_t data_bytes) {
  if (header_json.size() > kMaxHeaderBytes) {
    return base::fail(ErrorCode::kCorrupted, "the header is {} bytes long; at most {} are allowed", header_json.size(),
                      kMaxHeaderBytes);
  }
  HeaderReader reader;
  const bool whole = nlohmann::json::sax_parse(header_json.begin(), header_json.end(), &reader);
  if (reader.error) return base::fail(*reader.error);
  if (!whole) return base::fail(ErrorCode::kCorrupted, "the header is not valid JSON");
  // Empty tensors sort before the one that begins where they lie.
  std::sort(reader.entries.begin(), reader.entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.spec.name) < std::tie(b.begin, b.end, b.spec.name);
  });
  WB_TRY(check_data(reader.entries, data_bytes));
  return std::move(reader.entries);
}

}  // namespace weightbus::checkpoint
