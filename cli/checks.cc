#include "cli/checks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "cli/format.h"
#include "weightbus/transport/keys.h"

namespace weightbus::cli {
namespace {

constexpr unsigned long long kDescriptorsWanted = 4096;  // memory travels as descriptors, 253 a message
constexpr unsigned long long kSharedMemoryWanted = 64ULL << 20;

std::string first_line_with(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) return line;
  }
  return {};
}

std::string limit_text(rlim_t value) { return value == RLIM_INFINITY ? "unlimited" : std::to_string(value); }

}  // namespace

const char* health_name(Health health) noexcept {
  return health == Health::kOk ? "ok" : health == Health::kWarn ? "warn" : "fail";
}

Check judge_shared_memory(unsigned long long total_bytes, unsigned long long free_bytes) {
  Check check{"shared_memory", Health::kOk,
              fmt::format("/dev/shm: {} of {} free", format_size(free_bytes), format_size(total_bytes)), ""};
  if (total_bytes <= kSharedMemoryWanted) {
    check.health = Health::kFail;
    check.advice =
        "arenas live there, twice the weights of each rank: start the container with --shm-size, or `mount -o "
        "remount,size=... /dev/shm`";
  } else if (free_bytes < total_bytes / 10) {
    check.health = Health::kWarn;
    check.advice = "almost full: remove what is left of other programs in /dev/shm, or make it larger";
  }
  return check;
}

Check check_shared_memory() {
  struct statvfs info {};
  if (::statvfs("/dev/shm", &info) != 0) {
    return {"shared_memory", Health::kFail, fmt::format("/dev/shm cannot be used: {}", std::strerror(errno)),
            "mount a tmpfs there; arenas and the shm channel need it"};
  }
  return judge_shared_memory(static_cast<unsigned long long>(info.f_blocks) * info.f_frsize,
                             static_cast<unsigned long long>(info.f_bavail) * info.f_frsize);
}

Check check_reservation() {
  const std::string name = fmt::format("/weightbus.doctor.{}", ::getpid());
  const int fd = ::shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  const int open_error = errno;
  if (fd < 0) {
    return {"reservation", Health::kFail, fmt::format("shared memory cannot be made: {}", std::strerror(open_error)),
            "let this user write to /dev/shm"};
  }
  ::shm_unlink(name.c_str());
  const int error = ::posix_fallocate(fd, 0, 1 << 20);
  ::close(fd);
  if (error != 0) {
    return {"reservation", Health::kFail, fmt::format("posix_fallocate on /dev/shm fails: {}", std::strerror(error)),
            "memory must be reserved before it is used, or a full /dev/shm would kill the process: free space, or use "
            "a tmpfs"};
  }
  return {"reservation", Health::kOk, "posix_fallocate reserves shared memory", ""};
}

Check judge_descriptors(unsigned long long soft, unsigned long long hard) {
  Check check{"descriptors", Health::kOk,
              fmt::format("RLIMIT_NOFILE {}, at most {}", limit_text(soft), limit_text(hard)), ""};
  if (soft >= kDescriptorsWanted) return check;
  check.health = soft < 256 ? Health::kFail : Health::kWarn;
  check.advice = fmt::format(
      "`ulimit -n {}` (LimitNOFILE= in systemd): a coordinator needs one for each agent, an agent one "
      "for each piece of memory",
      kDescriptorsWanted);
  return check;
}

Check check_descriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return judge_descriptors(limit.rlim_cur, limit.rlim_max);
}

Check check_locked_memory() {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::string text = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : format_size(limit.rlim_cur);
  return {"locked_memory", Health::kOk, "RLIMIT_MEMLOCK " + text + "; nothing is locked on hosts without GPUs", ""};
}

Check check_huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  std::string modes;
  std::getline(file, modes);
  const auto begin = modes.find('[');
  const auto end = modes.find(']');
  const std::string mode =
      begin == std::string::npos || end == std::string::npos ? "unknown" : modes.substr(begin + 1, end - begin - 1);
  const std::string reserved = first_line_with("/proc/meminfo", "HugePages_Total:");
  const auto digits = reserved.find_first_of("0123456789");
  return {"huge_pages", Health::kOk,
          fmt::format("for shared memory: {}; {} reserved", mode,
                      digits == std::string::npos ? "0" : reserved.substr(digits)),
          mode == "never" || mode == "unknown"
              ? "`echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled` may shorten the pause at commit"
              : ""};
}

Check check_curve() {
  const auto keys = transport::generate_keys();
  if (keys) return {"curve", Health::kOk, "libzmq has CURVE: sockets off loopback can be encrypted", ""};
  return {"curve", Health::kFail, keys.error().message,
          "install libzmq5 of the distribution; without CURVE, only loopback works"};
}

Check check_clock() {
  timex state{};
  if (::adjtimex(&state) == TIME_ERROR) {
    return {"clock", Health::kWarn, "the clock is not synchronised",
            "run chrony or systemd-timesyncd; only the times shown for people depend on it, no deadline does"};
  }
  return {"clock", Health::kOk, "synchronised", ""};
}

}  // namespace weightbus::cli
