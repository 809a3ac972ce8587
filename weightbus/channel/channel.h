// Ways for bulk bytes. A channel moves buckets from a source's regions into a sink's regions; it knows nothing of
// updates, versions or the control plane. Descriptors (offers) travel as opaque bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightbus/base/result.h"
#include "weightbus/base/time.h"
#include "weightbus/device/device.h"
#include "weightbus/model/region.h"
#include "weightbus/plan/plan.h"

namespace weightbus::channel {

// How a sink reaches a source over one channel. `descriptor` is read only by that channel.
struct Offer {
  std::string channel;
  std::string descriptor;
  friend bool operator==(const Offer&, const Offer&) = default;
};

struct Viability {
  bool usable;
  std::string reason;  // why not, and what to do; empty when usable
};

// The source's end for one update: it serves until destroyed. The regions are borrowed and outlive it.
// Destruction returns only after nothing reads the regions any more.
class SourceSession {
 public:
  virtual ~SourceSession() = default;
  virtual const Offer& offer() const = 0;
  // Tells what to serve; before it, requests wait. May be called once.
  virtual void set_part(std::shared_ptr<const plan::SourcePart> part) = 0;
};

// The sink's end towards one source. Calls block and end by their deadline or soon (50 ms) after control.cancelled.
// When a call returns, nothing writes into `to` any more.
class PullSession {
 public:
  virtual ~PullSession() = default;
  // Delivers the buckets (all of this source and sink, in order) into the sink's regions, whole or with an error:
  // kDeadlineExceeded, kUnavailable (the source is gone), kAborted (cancelled), kCorrupted (framing).
  // Adds delivered payload to control.bytes_done as it goes.
  virtual base::Status pull(std::span<const plan::Bucket> buckets, std::span<const plan::PlannedTensor> tensors,
                            std::span<std::byte* const> to, base::Duration deadline, device::Control& control) = 0;
};

struct ServeRequest {
  model::MemberId source;
  std::vector<const device::Memory*> regions;  // by region index of the source manifest
  std::string token;                           // secret of this update; a pull must present it
};

struct JoinRequest {
  model::MemberId source;
  model::MemberId sink;
  Offer offer;
  std::string token;
  base::Duration deadline;  // for connecting and mapping
};

class Channel {
 public:
  virtual ~Channel() = default;
  virtual std::string_view name() const = 0;
  virtual Viability viability() const = 0;  // probed once, at construction
  virtual base::Result<std::unique_ptr<SourceSession>> serve(const ServeRequest& request) = 0;
  virtual base::Result<std::unique_ptr<PullSession>> join(const JoinRequest& request) = 0;
};

}  // namespace weightbus::channel
