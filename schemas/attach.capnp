# Attach: the conversation between an engine agent and the processes on its host that map its arena.
#
# It runs over a Unix stream socket with mode 0600, owned by the agent's user. The client connects; either side may close
# at any moment, and end-of-file is how each learns that the other has gone. Each message is one frame: the length of
# what follows in bytes (32 bits, little endian; a multiple of 8; at most 64 MiB), then one Cap'n Proto message in the
# standard stream framing whose root is a Message. A frame that breaks these rules ends the connection, nothing else.
#
# An arena has two halves. The client maps only the live half, at addresses that stay the same, and runs each generation
# step inside its launch gate. The agent alone decides which half is live; whatever it says last (ArenaInfo, Resume) is
# what the client must map before its gate opens again.
#
#   client                                        agent
#   Attach                 ------------------->             first on every connection
#                          <-------------------   ArenaInfo  as soon as there is an arena, and again when it changes;
#                                                 or Refused, and the connection ends
#                          <-------------------   Pause      close the gate; let the step that runs end
#   Paused                 ------------------->             no step is inside, and none will begin
#                          <-------------------   Exchange   map the other half
#   Exchanged              ------------------->             or ExchangeFailed, with the old half still mapped
#                          <-------------------   Resume     map what this names, open the gate
#
# Every request may be repeated and is answered again; repeating changes nothing twice. A client that gets a request it
# does not know ends the connection. After an end of the connection the client attaches again. A client whose last word was
# Paused or later keeps its gate closed until an agent has told it what is live, since the other ranks of its engine may
# have gone on; any other client keeps computing with what it has mapped.
#
# Lease: a client of kind engineRank holds an open-file-description write lock on the byte `lease` of the file
# "<socket>.lease" for as long as it may compute with arena memory. The kernel drops it when the process ends. A pause is
# complete only when every leased byte belongs to a client that answered Paused: a client that lives, but is not connected
# at this moment (its agent was restarted), is thereby not mistaken for one that died.

@0x809818d8ac056dbc;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("weightbus::schema::attach");

struct Message {
  revision @0 :UInt32;
  # Of this protocol: 1. Another one is refused by name.

  union {
    attach @1 :Attach;
    refused @2 :Refused;
    arena @3 :ArenaInfo;
    pause @4 :Pause;
    paused @5 :Paused;
    exchange @6 :Exchange;
    exchanged @7 :Exchanged;
    exchangeFailed @8 :ExchangeFailed;
    resume @9 :Resume;
  }
}

enum ClientKind {
  unknown @0;
  # Never sent on purpose; refused.
  engineRank @1;
  # Computes with the arena: a pause waits for it.
  observer @2;
  # Only looks: told everything, waited for never.
}

struct Attach {
  # Client to agent, first on each connection. Sent again on the same connection: answered again.
  pid @0 :UInt64;
  # As the client sees itself; for people. The agent trusts the socket's credentials instead where it can read them.
  kind @1 :ClientKind;
  lease @2 :UInt64;
  # The byte of the lease file that this client has locked; 0 for observers.
  software @3 :Text;
  # "weightbus 0.1.0"; for people.
}

struct Refused {
  # Agent to client; the agent closes after it.
  code @0 :UInt16;
  # A base::ErrorCode.
  message @1 :Text;
}

struct Region {
  kind @0 :UInt8;
  # A model::RegionKind. Named shared memory (1) is what clients of this revision can map.
  handle @1 :Data;
  # For named shared memory its name, as shm_open takes it after a slash.
  bytes @2 :UInt64;
  allocationId @3 :UInt64;
  # Another value means another memory, even under the same name.
  deviceUuid @4 :Text;
}

struct Half {
  regions @0 :List(Region);
}

struct Slot {
  tensor @0 :Text;
  # The name of the tensor of which this slot is a box.
  parameter @1 :Text;
  # The engine's own name for where it lies; for people.
  dtype @2 :UInt8;
  # A model::DType.
  kind @3 :UInt8;
  # A model::SlotKind.
  shape @4 :List(Int64);
  # Of the whole tensor. The four lists have equal lengths, at most 8.
  offset @5 :List(Int64);
  extent @6 :List(Int64);
  # The box, in elements.
  strides @7 :List(Int64);
  # In memory, in elements.
  region @8 :UInt32;
  # Index into the regions of either half.
  byteOffset @9 :UInt64;
  # Of the box's first element in that region.
}

struct Tag {
  version @0 :UInt64;
  layoutHigh @1 :UInt64;
  layoutLow @2 :UInt64;
  update @3 :UInt64;
}

struct ArenaInfo {
  # Agent to client: after Attach, and whenever the arena changed. The client maps the live half of it.
  halves @0 :List(Half);
  # Exactly two, with equally many regions of equal sizes.
  slots @1 :List(Slot);
  live @2 :UInt8;
  # 0 or 1.
  tag @3 :Tag;
  # What the live half holds. Null: nothing yet; the gate stays closed until a Resume or ArenaInfo names a version.
  paused @4 :Bool;
  # A pause is running: the gate stays closed until Resume. A Pause follows.
}

struct Pause {
  id @0 :UInt64;
  # Of the pause; grows on one agent, starts anew with a new one. Answer: Paused with this id.
  deadlineMs @1 :UInt32;
  # How long the agent will wait; for people and hooks, as the agent ends the pause itself with Resume.
}

struct Paused {
  # Client to agent: no step is inside the gate and none will begin before Resume.
  id @0 :UInt64;
}

struct Exchange {
  # Agent to client, after Paused of the same id. Answer: Exchanged or ExchangeFailed. One that comes before Paused is
  # answered ExchangeFailed.
  id @0 :UInt64;
  live @1 :UInt8;
  tag @2 :Tag;
}

struct Exchanged {
  # Client to agent: the live addresses now show the half that Exchange named.
  id @0 :UInt64;
  live @1 :UInt8;
  durationNs @2 :UInt64;
  # Of the mapping calls, by the client's clock.
}

struct ExchangeFailed {
  # Client to agent: refused before anything was unmapped; the old half is still there. (A failure after that ends the
  # client's process: it must not compute with half an arena.)
  id @0 :UInt64;
  code @1 :UInt16;
  message @2 :Text;
}

struct Resume {
  # Agent to client: the pause is over, exchanged or not. The client maps the half named here, if it does not yet, and
  # opens its gate. Not answered. One with an id that is not the running pause's changes nothing.
  id @0 :UInt64;
  live @1 :UInt8;
  tag @2 :Tag;
  # Null: the arena holds no version, and the gate stays closed.
}
