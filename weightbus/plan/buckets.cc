#include "weightbus/plan/buckets.h"

#include <algorithm>
#include <numeric>

#include "weightbus/base/assert.h"

namespace weightbus::plan {

using model::Box;

BucketCutter::BucketCutter(std::uint64_t bucket_bytes, BeginBucket begin_bucket, Part part)
    : bucket_bytes_(bucket_bytes), begin_bucket_(std::move(begin_bucket)), part_(std::move(part)) {
  WB_ASSERT(bucket_bytes_ >= kMinBucketBytes, "plan() refuses smaller buckets");
}

void BucketCutter::add(const Box& box, std::uint32_t element_bytes) {
  const auto bytes = box.volume() * element_bytes;
  if (bytes <= bucket_bytes_) return put(box, bytes);
  split(box, element_bytes);
}

void BucketCutter::put(const Box& box, std::uint64_t bytes) {
  if (bytes > left_) {
    begin_bucket_();
    left_ = bucket_bytes_;
  }
  left_ -= bytes;
  part_(box, bytes);
}

void BucketCutter::split(const Box& box, std::uint32_t element_bytes) {
  std::size_t d = 0;
  while (d < box.rank() && box.extent[d] == 1)
    ++d;
  WB_ASSERT(d < box.rank(), "a single element fits into any bucket");
  Box row = box;
  row.extent[d] = 1;
  const auto row_bytes = row.volume() * element_bytes;
  if (row_bytes > bucket_bytes_) {
    for (std::int64_t i = 0; i < box.extent[d]; ++i) {
      row.offset[d] = box.offset[d] + i;
      split(row, element_bytes);
    }
    return;
  }
  // So many rows make a multiple of 16 bytes.
  const auto unit = static_cast<std::int64_t>(kBucketAlignment / std::gcd(kBucketAlignment, row_bytes));
  const auto rows_in = [&](std::uint64_t bytes) {
    const auto rows = static_cast<std::int64_t>(bytes / row_bytes);
    return rows >= unit ? rows / unit * unit : rows;
  };
  for (std::int64_t done = 0; done < box.extent[d];) {
    const auto rest = box.extent[d] - done;
    auto rows = std::min(rest, static_cast<std::int64_t>(left_ / row_bytes));
    // What is left of the bucket before is filled only by aligned rows, lest later parts be shifted.
    if (rows < rest) rows = rows >= unit ? rows / unit * unit : 0;
    if (rows == 0) rows = std::min(rest, rows_in(bucket_bytes_));
    row.offset[d] = box.offset[d] + done;
    row.extent[d] = rows;
    put(row, static_cast<std::uint64_t>(rows) * row_bytes);
    done += rows;
  }
}

}  // namespace weightbus::plan
