#include "channel_fixture.h"
#include "weightbus/channel/local/factory.h"
#include "weightbus/channel/shm/factory.h"
#include "weightbus/channel/tcp/factory.h"

namespace weightbus::channel {

std::vector<Backend> backends() {
  const auto tcp = [](TcpOptions options) {
    return [options](const std::shared_ptr<device::Device>&) { return make_tcp_channel(options); };
  };
  return {
      {"local", false, [](const std::shared_ptr<device::Device>&) { return make_local_channel(); }},
      {"shm", true, [](const std::shared_ptr<device::Device>& device) { return make_shm_channel(device); }},
      {"shm_threads", true,
       [](const std::shared_ptr<device::Device>& device) { return make_shm_channel(device, {.threads = 3}); }},
      {"tcp", true, tcp({})},
      {"tcp_ipv6", true, tcp({.listen = "[::1]:0"})},
      // Two buckets on the way and the smallest buffer: everything is split, and every credit counts.
      {"tcp_small", true, tcp({.window_bytes = 1, .staging_bytes = 1})},
  };
}

}  // namespace weightbus::channel
