#include "weightbus/client/live_range.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "weightbus/base/checked_math.h"

namespace weightbus::client {
namespace {

using base::ErrorCode;
using base::fail;

std::size_t page_bytes() noexcept {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

base::Status check_size(int fd, const std::string& name, std::uint64_t bytes) {
  struct stat info {};
  if (::fstat(fd, &info) != 0)
    return fail(ErrorCode::kInternal, "cannot stat region {}: {}", name, std::strerror(errno));
  // Exactly: a shorter file would raise SIGBUS on its missing pages.
  if (static_cast<std::uint64_t>(info.st_size) != bytes)
    return fail(ErrorCode::kCorrupted, "region {} has {} bytes instead of {}", name, info.st_size, bytes);
  return {};
}

}  // namespace

LiveRange::LiveRange(MapFunction map_function) : map_(map_function != nullptr ? map_function : &::mmap) {}

LiveRange::~LiveRange() { unreserve(); }

base::Status LiveRange::open(const wire::ArenaInfo& info) {
  std::array<Half, 2> halves;
  std::vector<std::uint64_t> sizes;
  for (const auto& region : info.halves[0])
    sizes.push_back(region.bytes);
  for (std::size_t half = 0; half < 2; ++half) {
    for (const auto& region : info.halves[half]) {
      if (region.kind != model::RegionKind::kHostShm)
        return fail(ErrorCode::kUnsupported, "region kind {} cannot be mapped by this client: only named shared memory",
                    static_cast<unsigned>(region.kind));
      UniqueFd fd(::shm_open(("/" + region.handle).c_str(), O_RDONLY | O_CLOEXEC, 0));
      if (!fd.valid())
        return fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kPermissionDenied,
                    "cannot open shared memory {}: {}", region.handle, std::strerror(errno));
      WB_TRY(check_size(fd.get(), region.handle, region.bytes));
      halves[half].push_back({std::move(fd), region.bytes, region.handle});
    }
  }
  if (base_ == nullptr || sizes != sizes_) WB_TRY(reserve(sizes));
  halves_ = std::move(halves);
  mapped_.reset();
  return {};
}

base::Status LiveRange::reserve(const std::vector<std::uint64_t>& sizes) {
  std::vector<std::size_t> offsets;
  std::size_t total = 0;
  for (auto bytes : sizes) {
    const auto padded = base::checked_round_up<std::size_t>(bytes, page_bytes());
    const auto sum = padded ? base::checked_add<std::size_t>(total, *padded) : std::nullopt;
    if (!sum) return fail(ErrorCode::kInvalidArgument, "the arena's size overflows");
    offsets.push_back(total);
    total = *sum;
  }
  const std::size_t wanted = total == 0 ? page_bytes() : total;
  void* range = ::mmap(nullptr, wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED)
    return fail(ErrorCode::kResourceExhausted, "cannot reserve {} bytes of addresses: {}", wanted,
                std::strerror(errno));
  unreserve();
  base_ = static_cast<std::byte*>(range);
  reserved_ = wanted;
  sizes_ = sizes;
  offsets_ = std::move(offsets);
  return {};
}

void LiveRange::unreserve() noexcept {
  if (base_ != nullptr) ::munmap(base_, reserved_);
  base_ = nullptr;
  shown_ = false;
  mapped_.reset();
}

base::Status LiveRange::map(std::uint32_t half) {
  if (half > 1 || base_ == nullptr) return fail(ErrorCode::kInternal, "half {} is not open", half);
  for (const auto& region : halves_[half])
    WB_TRY(check_size(region.fd.get(), region.name, region.bytes));
  for (std::size_t i = 0; i < halves_[half].size(); ++i) {
    const auto& region = halves_[half][i];
    void* at = base_ + offsets_[i];
    if (map_(at, region.bytes, PROT_READ, MAP_SHARED | MAP_FIXED, region.fd.get(), 0) == at) continue;
    const std::string why = std::strerror(errno);
    if (!shown_) {
      // Nobody has computed with these addresses yet: the reservation is made whole again.
      ::mmap(base_, reserved_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
      return fail(ErrorCode::kResourceExhausted, "cannot map region {} of {} bytes: {}", region.name, region.bytes,
                  why);
    }
    std::fprintf(
        stderr,
        "weightbus: cannot map region %s (%zu of %zu) over the live addresses: %s. The process ends here, since "
        "its weights would be a mixture of two versions; start it again, its agent still holds both halves.\n",
        region.name.c_str(), i + 1, halves_[half].size(), why.c_str());
    std::fflush(stderr);
    std::_Exit(kExitHalfMapped);
  }
  shown_ = true;
  mapped_ = half;
  return {};
}

}  // namespace weightbus::client
