// What `weightbus doctor` looks at on this machine.
#pragma once

#include <string>
#include <vector>

namespace weightbus::cli {

enum class Health { kOk, kWarn, kFail };

struct Check {
  std::string name;  // stable: "shared_memory"
  Health health;
  std::string found;   // what is there
  std::string advice;  // what to do; empty if there is nothing to do
};

const char* health_name(Health health) noexcept;  // "ok", "warn", "fail"

// Each looks at one thing and changes nothing that lasts.
Check check_shared_memory();
Check check_reservation();  // posix_fallocate on shared memory
Check check_descriptors();
Check check_locked_memory();
Check check_huge_pages();
Check check_curve();
Check check_clock();
Check check_cuda();
Check check_nccl();

// Of the numbers alone, for tests.
Check judge_shared_memory(unsigned long long total_bytes, unsigned long long free_bytes);
Check judge_descriptors(unsigned long long soft, unsigned long long hard);

}  // namespace weightbus::cli
