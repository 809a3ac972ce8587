@0x94ad7f3c5be1620f;
# What the coordinator writes down. Replaying all records in order gives its durable state.
#
# A record is one frame (see common.capnp) with a JournalRecord as its root. Records are appended under the epoch of their
# writer and never changed. A record that cannot be read stops the coordinator: it does not start on half a history.
# `revision` grows with any change that an older reader must not ignore; a newer record is refused, not guessed at.

using Cxx = import "/capnp/c++.capnp";
using Common = import "common.capnp";
using Admin = import "admin.capnp";
$Cxx.namespace("weightbus::wire::proto");

struct JournalRecord {
  revision @0 :UInt32;           # 1
  union {
    unset @1 :Void;              # never written
    numbersReserved @2 :NumbersReserved;
    decided @3 :Decided;
    ended @4 :Ended;
    pinned @5 :Pinned;
    adopted @6 :Adopted;
    evicted @7 :Evicted;
  }
}

struct NumbersReserved {
  # Numbers up to these may have been used; after a restart, counting goes on above them. Written ahead, in blocks.
  model @0 :Text;
  versionsTo @1 :UInt64;
  updatesTo @2 :UInt64;
}

struct DecidedEngine {
  engine @0 :Text;
  ranks @1 :List(Common.RankTag);  # the driver first
}

struct Decided {
  # The commit point: every required engine has staged and verified. One for each update, ever; on disk before the first
  # Commit is sent. From here on the update is completed, however often anyone restarts.
  model @0 :Text;
  update @1 :UInt64;
  kind @2 :Common.UpdateKind;
  hasBase @3 :Bool;
  base @4 :UInt64;               # the version committed before it
  target @5 :UInt64;
  engines @6 :List(DecidedEngine);
  digests @7 :List(Common.NamedDigest);  # a push: the version's second digest, by tensor; otherwise empty
  bytes @8 :UInt64;              # a push: the version's size
  step @9 :UInt64;
  unixMs @10 :UInt64;
  source @11 :Text;
}

struct Ended {
  # The end of an update, as history shows it.
  model @0 :Text;
  status @1 :Admin.UpdateStatus;
}

struct Pinned {
  model @0 :Text;
  version @1 :UInt64;
  pinned @2 :Bool;               # the newest record of a version holds
}

struct Adopted {
  # Members of another journal were taken over; numbers go on above these.
  model @0 :Text;
  versionsTo @1 :UInt64;
  updatesTo @2 :UInt64;
  epoch @3 :UInt64;
}

struct Evicted {
  # Members of this name are refused until they are started anew, that is, until their boot differs.
  model @0 :Text;
  member @1 :Text;
  boot @2 :UInt64;
}
