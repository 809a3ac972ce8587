// `tcp`: CPU memory across hosts. The source listens; a sink connects, proves that it holds the update's token, asks
// for its buckets and receives them straight into place where they are contiguous.
//
// The token is proved, not sent, by a keyed hash over both ends' random numbers. Nothing is encrypted: who can read the
// network can read weights, and who can change its packets can change them on the way, which the digests then find.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "weightbus/channel/channel.h"

namespace weightbus::channel {

// What was turned away, for metrics. Each counts connections.
struct TcpCounters {
  std::atomic<std::uint64_t> accepted{0};       // authenticated
  std::atomic<std::uint64_t> refused_token{0};  // wrong token or unknown session
  std::atomic<std::uint64_t> malformed{0};      // not our protocol, or broken off inside it
  std::atomic<std::uint64_t> over_limit{0};     // more than connections_max at once
};

struct TcpOptions {
  std::string listen = "127.0.0.1:0";  // "host:port", "[::1]:port" or "*:port"; port 0 takes a free one
  std::string advertise{};             // the host that sinks connect to; empty: the one listened on, or the host name
  std::uint32_t connections_max = 256;
  std::uint64_t window_bytes = 64ULL << 20;  // buckets on the way to one sink: as many as fit, at least two
  std::uint64_t staging_bytes = 1ULL << 20;  // a side and session, for what is not contiguous; at least 4096
  base::Duration handshake = std::chrono::seconds(5);
  base::Duration stall = std::chrono::seconds(30);  // a source drops a sink that takes nothing for so long
  std::shared_ptr<TcpCounters> counters{};          // may be null
};

// Listens at once and holds the socket; the channel is not viable, with the reason, when that fails. A process that
// only joins needs no port of its own but holds one all the same.
std::unique_ptr<Channel> make_tcp_channel(const TcpOptions& options = {});

}  // namespace weightbus::channel
