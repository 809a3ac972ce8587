// What there is of CUDA and NCCL, asked of the libraries themselves: this program is not linked with them.
#include <dlfcn.h>
#include <fmt/format.h>

#include <memory>

#include "cli/checks.h"

namespace weightbus::cli {
namespace {

struct Close {
  void operator()(void* library) const { ::dlclose(library); }
};
using Library = std::unique_ptr<void, Close>;

// The number that `function(int*)` gives; -1 if there is no such function or it fails.
int ask_version(const Library& library, const char* function) {
  using Ask = int (*)(int*);
  const auto ask = reinterpret_cast<Ask>(::dlsym(library.get(), function));
  int version = -1;
  return ask != nullptr && ask(&version) == 0 ? version : -1;
}

}  // namespace

Check check_cuda() {
  const Library library(::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL));
  if (!library) {
    return {"cuda", Health::kOk, "no CUDA driver (libcuda.so.1): this host serves weights in CPU memory", ""};
  }
  const int version = ask_version(library, "cuDriverGetVersion");
  if (version < 0) {
    return {"cuda", Health::kWarn, "libcuda.so.1 is there and does not tell its version", "install the driver anew"};
  }
  return {"cuda", Health::kOk,
          fmt::format("driver for CUDA {}.{}; this build moves CPU memory only", version / 1000, version % 1000 / 10),
          ""};
}

Check check_nccl() {
  const Library library(::dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL));
  if (!library) return {"nccl", Health::kOk, "no NCCL (libnccl.so.2): the nccl channel is not there", ""};
  const int version = ask_version(library, "ncclGetVersion");
  if (version < 0)
    return {"nccl", Health::kWarn, "libnccl.so.2 is there and does not tell its version", "install it anew"};
  return {"nccl", Health::kOk,
          fmt::format("NCCL {}.{}.{}; this build has no nccl channel", version / 10'000, version / 100 % 100,
                      version % 100),
          ""};
}

}  // namespace weightbus::cli
