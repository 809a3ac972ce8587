@0xd1f6a0c2b7e94e31;
# The words that all Weightbus messages share: identities, tags, tensors, memory layouts, digests and errors.
#
# How to read these files
#   The schema is the specification of the protocol. sync.capnp holds what agents and coordinator say to one another,
#   admin.capnp what command lines and trainers ask, journal.capnp what the coordinator writes down. The C++ values of
#   the same names are in weightbus/protocol/; weightbus/wire/ converts and refuses what does not follow the rules below.
#
# Frames
#   A frame is one Cap'n Proto message in its standard stream framing, not packed: a table of segment sizes, then the
#   segments. Its size is a multiple of 8 bytes, at most 16 segments, and exactly what the table says. A receiver copies
#   it into aligned memory before it reads it, follows at most four times its size in words, and at most 16 pointers deep.
#   Whatever breaks a rule ends that message and nothing else.
#
# Chunks
#   A message larger than 4 MiB travels as several frames of one connection. Each starts with 48 bytes, all numbers
#   little-endian, and carries a part of the message after them:
#     offset  0  UInt64  0x314b4e5548434257 ("WBCHUNK1"; no message starts so, since its first four bytes count segments)
#             8  UInt64  stream: names the message; consecutive messages of a connection have different ones
#            16  UInt64  bytes of the whole message
#            24  UInt64  XXH3-64 of the whole message
#            32  UInt32  index of this chunk: 0, 1, ... in this order, each once
#            36  UInt32  number of chunks
#            40  UInt64  XXH3-64 of the 40 bytes before and of the part, in this order
#   Every chunk but the last holds 4 MiB less 48 bytes. A receiver that misses a chunk, or sees one twice, drops the
#   message; the sender of a request repeats it anyway. A chunk of a larger stream ends what was incomplete before.
#
# Versions of the protocol
#   Fields and enumerants are only ever added, at the end, with new ordinals, and never change meaning: an older receiver
#   ignores a field that it does not know, a newer one takes its absence for the default. Where that would be wrong, the
#   revision in the envelope grows, and a receiver refuses a revision that it does not speak ("unsupported"), as it
#   refuses a union member or an enumerant that it does not know: it never guesses.
#
# Presence
#   A struct field is required unless its comment says "absent"; a missing one is an error. A number that may be absent
#   has a `has...` beside it. Text and lists are empty when missing. Text is UTF-8 without NUL: names up to 4 KiB, text
#   for people up to 64 KiB.
#
# Units
#   Bytes, unless the name says otherwise; durations end in Ms or Ns. Deadlines are durations from the receipt of the
#   message, because clocks of two hosts are not comparable. UnixMs is wall-clock time, for people only.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("weightbus::wire::proto");

# ------------------------------------------------------------------------------------------------ identities

struct Hash128 {
  # XXH3-128 of some content. It detects difference, not malice.
  high @0 :UInt64;
  low @1 :UInt64;
}

struct Epoch {
  # One incarnation of the coordinator on one journal. A message of an older epoch changes nothing.
  journal @0 :Hash128;  # the journal's UUID; zero: none (before Welcome, and from command lines)
  number @1 :UInt64;    # grows with each start on that journal
}

struct Tag {
  # What a half of an arena holds. A half is exchanged in only when its tag equals, in all fields, the one that Commit
  # names.
  version @0 :UInt64;
  layout @1 :Hash128;  # layout hash of the sink manifest it was written under
  update @2 :UInt64;   # the update that staged it
}

struct RankTag {
  # The half that one rank is to exchange in.
  rank @0 :Text;  # member id
  tag @1 :Tag;
}

struct Half {
  tag @0 :Tag;        # absent: empty, or being written
  verified @1 :Bool;  # Staged was answered for it and the decision named it
}

enum Role {
  unset @0;  # never sent
  shardAgent @1;
  engineAgent @2;
  admin @3;  # a command line, or a trainer that publishes
  coordinator @4;
}

struct Member {
  # What a member says of itself. Fixed for one boot.
  id @0 :Text;          # unique among the members of the model
  role @1 :Role;
  model @2 :Text;
  host @3 :Text;        # equal where shared memory can be shared
  deviceUuid @4 :Text;  # empty for host memory
  rank @5 :UInt32;      # trainer_rank of a shard agent, tp_rank of an engine agent
  world @6 :UInt32;     # how many ranks of that kind belong together
  engine @7 :Text;      # engine agents: the engine's name; empty otherwise
  endpoint @8 :Text;    # engine agents: where the ranks of its engine reach it
  publicKey @9 :Text;   # CURVE public key (Z85); empty on loopback without keys
}

# ------------------------------------------------------------------------------------------------ errors

enum ErrorCode {
  # Named by what the caller may do.
  unset @0;             # never sent
  invalidArgument @1;   # the input is wrong; the same call will fail again
  notFound @2;          # the named thing does not exist
  conflict @3;          # something else is in the way
  unavailable @4;       # cannot be reached now; try again later
  deadlineExceeded @5;  # a bounded wait ran out
  resourceExhausted @6; # memory or disk does not suffice; says needed and free bytes
  corrupted @7;         # content does not match its digest or format
  permissionDenied @8;  # the key or role may not do this
  unsupported @9;       # recognised, and not implemented here
  aborted @10;          # the update was aborted; nothing changed
  stale @11;            # of an older epoch, update or boot
  internal @12;         # a fault of Weightbus
}

struct Error {
  code @0 :ErrorCode;
  message @1 :Text;  # for a person: what went wrong, with whom, and what to do
}

# ------------------------------------------------------------------------------------------------ tensors and memory

enum DType {
  unset @0;  # never sent
  bool @1;
  u8 @2;
  i8 @3;
  f8e4m3 @4;
  f8e5m2 @5;
  u16 @6;
  i16 @7;
  f16 @8;
  bf16 @9;
  u32 @10;
  i32 @11;
  f32 @12;
  u64 @13;
  i64 @14;
  f64 @15;
}

enum Cast {
  # A conversion that a slot asks for by name.
  none @0;
  f32ToBf16 @1;
  f32ToF16 @2;
  bf16ToF32 @3;
  f16ToF32 @4;
  bf16ToF16 @5;
  f16ToBf16 @6;
}

enum SlotKind {
  unset @0;     # never sent
  raw @1;       # written from shards
  derived @2;   # computed by the engine's own post-load step
  constant @3;  # filled
}

struct TensorSpec {
  name @0 :Text;
  dtype @1 :DType;
  shape @2 :List(Int64);  # global; at most 8 numbers
}

struct Alias {
  # Two names for one tensor. Both hold the same bytes; they travel once.
  name @0 :Text;
  target @1 :Text;
}

struct Table {
  # A list of small records, written as plain words because lists of a hundred thousand of them are ordinary.
  #
  # Each record starts with the word `head`: bits 0..31 the index of its tensor, then four times 8 bits the number of
  # dimensions of (box offset, box extent, strides, second strides), at most 8 each; in one record all that it has are
  # equal, since strides are part of the address, one a dimension. After its fixed words follow the numbers of box offset,
  # box extent, strides and second strides, signed, two's complement. Strides count elements.
  #   shard     head; region (bits 0..31); byte offset in the region
  #   slot      head; region (0..31), SlotKind (32..39), Cast (40..47), fill byte (48..55); byte offset
  #   unit      head; region (0..31), primary (bit 32); byte offset
  #   fragment  head; source region (0..31), sink region (32..63); source offset; sink offset; slot index (0..31).
  #             The strides are the source's, the second strides the sink's.
  # Bits not named are zero.
  count @0 :UInt32;          # of records; they fill `words` exactly
  words @1 :List(UInt64);
}

struct SourceManifest {
  # Every shard of a source rank. Valid as long as its update; its layout hash is computed by each side.
  tensors @0 :List(TensorSpec);
  shards @1 :Table;               # of shard; the tensor index is into `tensors`
  regionBytes @2 :List(UInt64);   # the size of each region that placements refer to
  aliases @3 :List(Alias);
  ignored @4 :List(Text);         # tensor names (`*` matches any run) that no engine needs
}

struct SinkManifest {
  # Every slot of an engine rank.
  tensors @0 :List(TensorSpec);
  slots @1 :Table;                # of slot
  parameters @2 :List(Text);      # one a slot: the engine's own name for where it lies
  regionBytes @3 :List(UInt64);
  aliases @4 :List(Alias);
  ignored @5 :List(Text);         # source tensor names that this engine does not need
}

# ------------------------------------------------------------------------------------------------ plans

struct PlannedTensor {
  name @0 :Text;
  sourceDtype @1 :DType;
  dtype @2 :DType;       # after the cast
  cast @3 :Cast;
  shape @4 :List(Int64);
  grainBytes @5 :UInt32; # digest grain, 1 to 16
}

struct Bucket {
  # The unit of sending, acknowledging and retrying.
  index @0 :UInt32;     # 0, 1, ... within its (source, sink) pair
  source @1 :Text;      # member ids
  sink @2 :Text;
  bytes @3 :UInt64;     # payload after casts
  fragments @4 :Table;  # of fragment, in the order of packing
}

struct SourcePart {
  planHash @0 :Hash128;
  tensors @1 :List(PlannedTensor);
  units @2 :Table;      # of unit: boxes whose digests are reported, in this order
  buckets @3 :List(Bucket);
}

struct SinkPart {
  planHash @0 :Hash128;
  tensors @1 :List(PlannedTensor);
  slots @2 :List(UInt64);  # bits 0..31 index of the slot in the sink manifest, 32..63 of the tensor; digests in this order
  buckets @3 :List(Bucket);
  bytes @4 :UInt64;        # sum over buckets
}

struct NamedDigest {
  name @0 :Text;    # of a tensor
  lane0 @1 :UInt64;
  lane1 @2 :UInt64;
}

struct SlotDigest {
  # The element-grain digest of one live slot.
  tensor @0 :TensorSpec;
  boxOffset @1 :List(Int64);
  boxExtent @2 :List(Int64);  # as many as boxOffset
  lane0 @3 :UInt64;
  lane1 @4 :UInt64;
}

# ------------------------------------------------------------------------------------------------ sources

struct SourceSpec {
  # Where the bytes of an update come from.
  union {
    unset @0 :Void;         # never sent
    checkpoint @1 :Text;    # a directory, as the shard agents see it
    trainer @2 :Void;       # the attached trainer's memory
    live @3 :UInt64;        # an engine agent's live half, of this version
    snapshot @4 :UInt64;    # a snapshot of this version on the agent's disk
  }
}

struct ChannelOffer {
  # How sinks reach a source over one channel. The descriptor is the channel's own, and opaque here; up to 64 KiB.
  channel @0 :Text;
  descriptor @1 :Data;
}

struct SourcePeer {
  # What a sink is told of a source that it reads.
  member @0 :Text;
  host @1 :Text;
  deviceUuid @2 :Text;
  offers @3 :List(ChannelOffer);
}

struct HeldVersion {
  # A snapshot that an agent holds.
  version @0 :UInt64;
  layout @1 :Hash128;
  bytes @2 :UInt64;    # on its disk, of tensors first stored with this version
}

enum CommitWay {
  unset @0;  # never sent
  remap @1;
  swap @2;
  copy @3;
  direct @4;
}

enum UpdateKind {
  unset @0;  # never sent
  push @1;
  rollback @2;
  catchUp @3;
}

enum Phase {
  unset @0;  # never sent
  queued @1;
  announced @2;
  planned @3;
  accepted @4;
  staging @5;
  staged @6;
  committing @7;
  committed @8;
  aborting @9;
  aborted @10;
}
