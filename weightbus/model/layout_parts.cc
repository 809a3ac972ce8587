#include "weightbus/model/layout_parts.h"

#include <algorithm>

#include "weightbus/base/checked_math.h"

namespace weightbus::model::layout_detail {
namespace {

using base::Result;

// A range of one dimension.
struct Range {
  std::uint64_t begin;
  std::uint64_t count;
};

// Rows that must stay together; nullopt when neither the numbers nor the tensors tell.
std::optional<std::uint64_t> unit_rows(const Context& context, const SplitUnit& unit) {
  if (const auto number = context.numbers.find(unit.number); number != context.numbers.end()) return number->second;
  if (!unit.dim_of.empty()) {
    for (const auto& spec : context.tensors) {
      if (spec.shape.size() == 0 || !match_pattern(unit.dim_of, spec.name)) continue;
      return static_cast<std::uint64_t>(spec.shape[0]);
    }
  }
  if (unit.rows > 0) return unit.rows;
  return std::nullopt;
}

Result<Range> split_range(const Context& context, const Split& split, const std::string& name, std::uint64_t rows) {
  if (context.tp_size == 1) return Range{0, rows};
  const auto unit = unit_rows(context, split.unit);
  if (!unit) {
    return reject(
        "tensor {}: to split it over {} ranks the number {} is needed (config.json has it); set it for this engine",
        name, context.tp_size, split.unit.number.empty() ? split.unit.dim_of : split.unit.number);
  }
  if (*unit == 0 || rows % *unit != 0) {
    return reject("tensor {}: dimension {} has {} rows, which are not whole units of {}", name, split.dim, rows, *unit);
  }
  const auto units = rows / *unit;
  if (units % context.tp_size == 0) {
    const auto share = rows / context.tp_size;
    return Range{share * context.tp_rank, share};
  }
  if (split.replicate && units < context.tp_size && context.tp_size % units == 0) {
    return Range{context.tp_rank / (context.tp_size / units) * *unit, *unit};
  }
  return reject("tensor {}: dimension {} ({} rows in units of {}) cannot be divided among {} ranks", name, split.dim,
                rows, *unit, context.tp_size);
}

Result<std::pair<DType, Cast>> cast_of(const LayoutPart& part, const TensorSpec& spec) {
  if (part.cast == Cast::kNone) return std::pair(spec.dtype, Cast::kNone);
  std::optional<DType> target;
  for (int value = static_cast<int>(DType::kBool); value <= static_cast<int>(DType::kF64); ++value) {
    const auto dtype = static_cast<DType>(value);
    if (find_cast(spec.dtype, dtype) == part.cast) return std::pair(dtype, part.cast);
    for (int from = static_cast<int>(DType::kBool); from <= static_cast<int>(DType::kF64); ++from) {
      if (find_cast(static_cast<DType>(from), dtype) == part.cast) target = dtype;
    }
  }
  // Already what the engine wants.
  if (target == spec.dtype) return std::pair(spec.dtype, Cast::kNone);
  return reject("tensor {} is {}, to which the cast {} does not apply", spec.name, dtype_name(spec.dtype),
                cast_name(part.cast));
}

// The rank's share of the padded dimension: first rows of the tensor, then constant ones.
Result<LocalPart> pad(const Context& context, const LayoutPart& part, LocalPart local) {
  const auto& padding = *part.padding;
  const auto rows = static_cast<std::uint64_t>(local.spec.shape[padding.dim]);
  const auto padded = base::checked_round_up(rows, padding.multiple);
  const auto padded_signed = padded ? base::checked_cast<std::int64_t>(*padded) : std::nullopt;
  if (!padded_signed) return reject("tensor {}: its padded size overflows", local.spec.name);
  Range share{0, *padded};
  if (part.split) {
    WB_ASSIGN(share, split_range(context, *part.split, local.spec.name + " (padded)", *padded));
  }
  const auto begin = std::min(share.begin, rows);
  const auto end = std::min(share.begin + share.count, rows);
  local.box.offset[padding.dim] = static_cast<std::int64_t>(begin);
  local.box.extent[padding.dim] = static_cast<std::int64_t>(end - begin);
  local.extent[padding.dim] = static_cast<std::int64_t>(share.count);
  local.pad_dim = padding.dim;
  local.fill = padding.fill;
  const auto constant = share.count - (end - begin);
  if (constant == 0) return local;
  PaddingPart constants{local.spec, Box::whole(local.spec.shape)};
  constants.spec.name += "#padding";
  constants.spec.shape[padding.dim] = static_cast<std::int64_t>(*padded - rows);
  constants.box.offset[padding.dim] = static_cast<std::int64_t>(std::max(share.begin, rows) - rows);
  constants.box.extent[padding.dim] = static_cast<std::int64_t>(constant);
  local.padding = std::move(constants);
  return local;
}

}  // namespace

std::optional<std::uint64_t> checked_bytes(const Dims& shape, DType dtype) noexcept {
  Dims at_least_one;
  bool empty = false;
  for (const auto extent : shape) {
    empty = empty || extent == 0;
    at_least_one.push_back(extent == 0 ? 1 : extent);
  }
  const auto volume = checked_volume(at_least_one);
  const auto bytes = volume ? base::checked_mul<std::uint64_t>(*volume, dtype_size(dtype)) : std::nullopt;
  if (!bytes || !base::checked_cast<std::int64_t>(*bytes)) return std::nullopt;
  return empty ? 0 : *bytes;
}

Result<LocalPart> localize(const Context& context, const LayoutPart& part, const TensorSpec& spec) {
  LocalPart local{spec, Box::whole(spec.shape), spec.shape, Cast::kNone, std::nullopt, 0, 0};
  WB_ASSIGN(const auto cast, cast_of(part, spec));
  local.spec.dtype = cast.first;
  local.cast = cast.second;
  const auto dims = spec.shape.size();
  if ((part.split && part.split->dim >= dims) || (part.padding && part.padding->dim >= dims)) {
    return reject("tensor {} has the shape {}, without the dimension {} that its rule names", spec.name,
                  to_string(spec.shape), part.split ? part.split->dim : part.padding->dim);
  }
  if (part.padding) return pad(context, part, std::move(local));
  if (!part.split) return local;
  const auto dim = part.split->dim;
  WB_ASSIGN(const auto share,
            split_range(context, *part.split, spec.name, static_cast<std::uint64_t>(spec.shape[dim])));
  local.box.offset[dim] = static_cast<std::int64_t>(share.begin);
  local.box.extent[dim] = static_cast<std::int64_t>(share.count);
  local.extent = local.box.extent;
  return local;
}

Result<Dims> fused_shape(const std::string& parameter, const std::vector<LocalPart>& parts, std::uint32_t dim) {
  const auto& first = parts.front();
  Dims shape = first.extent;
  if (parts.size() == 1) return shape;
  if (dim >= shape.size()) {
    return reject("parameter {}: its parts are fused along dimension {}, but {} has the shape {}", parameter, dim,
                  first.spec.name, to_string(first.spec.shape));
  }
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto& part = parts[i];
    if (part.spec.dtype != first.spec.dtype) {
      return reject("parameter {}: {} is {} but {} is {}", parameter, part.spec.name, dtype_name(part.spec.dtype),
                    first.spec.name, dtype_name(first.spec.dtype));
    }
    bool fits_beside = part.extent.size() == shape.size();
    for (std::size_t d = 0; fits_beside && d < shape.size(); ++d) {
      fits_beside = d == dim || part.extent[d] == shape[d];
    }
    const auto sum = fits_beside ? base::checked_add(shape[dim], part.extent[dim]) : std::nullopt;
    if (!sum) {
      return reject("parameter {}: {} {} does not fit beside {} {} along dimension {}", parameter, part.spec.name,
                    to_string(part.extent), first.spec.name, to_string(first.extent), dim);
    }
    shape[dim] = *sum;
  }
  return shape;
}

}  // namespace weightbus::model::layout_detail
