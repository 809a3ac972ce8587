// The frames of the tcp channel, revision 1. All numbers are little-endian.
//
//   source -> sink  ServerHello   on connecting
//   sink -> source  ClientHello   with a proof of the token; then the sink's name
//   source -> sink  ServerWelcome accepted, with the source's proof; or refused, and the connection closes
//   sink -> source  Request       kPull: send `count` buckets from index `first` on; at most `credits` at first
//   source -> sink  BucketHeader  kData, then `bytes` of payload, once a bucket, in order; kFailed, then a message,
//   ends
//                                 the pull, and the connection closes
//   sink -> source  Request       kCredit: one more bucket may be sent; once a bucket until `count` have been granted
//
// A pull begins when the one before is complete. Everything else closes the connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "weightbus/channel/encoding.h"
#include "weightbus/channel/secret.h"

namespace weightbus::channel {

inline constexpr std::string_view kTcpName = "tcp";
inline constexpr std::uint32_t kTcpMagic = 0x54434257;  // "WBCT"
inline constexpr std::uint16_t kTcpRevision = 1;
inline constexpr std::size_t kMemberNameMax = 255;
inline constexpr std::size_t kFailureMax = 1024;
inline constexpr std::uint32_t kCreditsMax = 1024;

struct ServerHello {
  static constexpr std::size_t kSize = 4 + 2 + 32;
  std::uint16_t revision = kTcpRevision;
  Secret nonce;
  std::string encode() const;
  static std::optional<ServerHello> decode(std::string_view bytes);  // nullopt: not this protocol
};

struct ClientHello {
  static constexpr std::size_t kSize = 4 + 2 + 8 + 2 + 32 + 32;
  std::uint16_t revision = kTcpRevision;
  std::uint64_t session;
  std::uint16_t name_size;  // of the sink's name, which follows
  Secret nonce;
  Secret proof;
  std::string encode() const;
  static std::optional<ClientHello> decode(std::string_view bytes);
};

struct ServerWelcome {
  static constexpr std::size_t kSize = 2 + 32;
  std::uint16_t refusal = 0;  // an ErrorCode; 0: accepted
  Secret proof{};
  std::string encode() const;
  static std::optional<ServerWelcome> decode(std::string_view bytes);
};

enum class RequestKind : std::uint32_t { kPull = 1, kCredit = 2 };
struct Request {
  static constexpr std::size_t kSize = 4 * 4;
  RequestKind kind;
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  std::uint32_t credits = 0;
  std::string encode() const;
  static std::optional<Request> decode(std::string_view bytes);
};

enum class HeaderKind : std::uint32_t { kData = 1, kFailed = 2 };
struct BucketHeader {
  static constexpr std::size_t kSize = 4 + 4 + 8;
  HeaderKind kind;
  std::uint32_t number;  // the bucket's index, or an ErrorCode
  std::uint64_t bytes;   // that follow
  std::string encode() const;
  static std::optional<BucketHeader> decode(std::string_view bytes);
};

// The proof that one end makes of the token, over everything that both ends have said.
Secret make_proof(const Secret& key, std::string_view side, const Secret& server_nonce, const Secret& client_nonce,
                  std::uint64_t session, std::string_view sink);

}  // namespace weightbus::channel
