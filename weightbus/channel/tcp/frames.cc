#include "weightbus/channel/tcp/frames.h"

#include <algorithm>

namespace weightbus::channel {
namespace {

std::optional<Secret> read_secret(Decoder& decoder) {
  const auto bytes = decoder.raw(32);
  if (!bytes) return std::nullopt;
  Secret secret{};
  std::copy(bytes->begin(), bytes->end(), secret.begin());
  return secret;
}

}  // namespace

std::string ServerHello::encode() const {
  Encoder encoder;
  encoder.number(kTcpMagic);
  encoder.number(revision);
  encoder.raw(view(nonce));
  return encoder.take();
}

std::optional<ServerHello> ServerHello::decode(std::string_view bytes) {
  Decoder decoder(bytes);
  if (decoder.number<std::uint32_t>() != kTcpMagic) return std::nullopt;
  const auto revision = decoder.number<std::uint16_t>();
  const auto nonce = read_secret(decoder);
  if (!revision || !nonce) return std::nullopt;
  return ServerHello{*revision, *nonce};
}

std::string ClientHello::encode() const {
  Encoder encoder;
  encoder.number(kTcpMagic);
  encoder.number(revision);
  encoder.number(session);
  encoder.number(name_size);
  encoder.raw(view(nonce));
  encoder.raw(view(proof));
  return encoder.take();
}

std::optional<ClientHello> ClientHello::decode(std::string_view bytes) {
  Decoder decoder(bytes);
  if (decoder.number<std::uint32_t>() != kTcpMagic) return std::nullopt;
  const auto revision = decoder.number<std::uint16_t>();
  const auto session = decoder.number<std::uint64_t>();
  const auto name_size = decoder.number<std::uint16_t>();
  const auto nonce = read_secret(decoder);
  const auto proof = read_secret(decoder);
  if (!revision || !session || !name_size || *name_size > kMemberNameMax || !nonce || !proof) return std::nullopt;
  return ClientHello{*revision, *session, *name_size, *nonce, *proof};
}

std::string ServerWelcome::encode() const {
  Encoder encoder;
  encoder.number(refusal);
  encoder.raw(view(proof));
  return encoder.take();
}

std::optional<ServerWelcome> ServerWelcome::decode(std::string_view bytes) {
  Decoder decoder(bytes);
  const auto refusal = decoder.number<std::uint16_t>();
  const auto proof = read_secret(decoder);
  if (!refusal || !proof) return std::nullopt;
  return ServerWelcome{*refusal, *proof};
}

std::string Request::encode() const {
  Encoder encoder;
  encoder.number(static_cast<std::uint32_t>(kind));
  encoder.number(first);
  encoder.number(count);
  encoder.number(credits);
  return encoder.take();
}

std::optional<Request> Request::decode(std::string_view bytes) {
  Decoder decoder(bytes);
  const auto kind = decoder.number<std::uint32_t>();
  const auto first = decoder.number<std::uint32_t>();
  const auto count = decoder.number<std::uint32_t>();
  const auto credits = decoder.number<std::uint32_t>();
  if (!kind || *kind < 1 || *kind > 2 || !first || !count || !credits) return std::nullopt;
  return Request{static_cast<RequestKind>(*kind), *first, *count, *credits};
}

std::string BucketHeader::encode() const {
  Encoder encoder;
  encoder.number(static_cast<std::uint32_t>(kind));
  encoder.number(number);
  encoder.number(bytes);
  return encoder.take();
}

std::optional<BucketHeader> BucketHeader::decode(std::string_view bytes) {
  Decoder decoder(bytes);
  const auto kind = decoder.number<std::uint32_t>();
  const auto number = decoder.number<std::uint32_t>();
  const auto size = decoder.number<std::uint64_t>();
  if (!kind || *kind < 1 || *kind > 2 || !number || !size) return std::nullopt;
  return BucketHeader{static_cast<HeaderKind>(*kind), *number, *size};
}

Secret make_proof(const Secret& key, std::string_view side, const Secret& server_nonce, const Secret& client_nonce,
                  std::uint64_t session, std::string_view sink) {
  Encoder encoder;
  encoder.string(side);
  encoder.raw(view(server_nonce));
  encoder.raw(view(client_nonce));
  encoder.number(session);
  encoder.string(sink);
  return prove(key, encoder.take());
}

}  // namespace weightbus::channel
