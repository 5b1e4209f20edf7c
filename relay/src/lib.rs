//! The directory of an untrusted relay for MLS groups (RFC 9420; the delivery service of RFC 9750): protocol, state and client.
//!
//! A relay forwards and stores sealed bytes. Its MQTT broker carries datagrams; its *directory* keeps, for each group, a log of
//! handshakes in one order, and what members fetch: blobs, key packages, Welcomes. Groups, devices and keys are names of 32
//! bytes which members derive from the group's secrets, so that the directory learns no name, topic or payload (D4, D8).
//!
//! | module | what |
//! |---|---|
//! | [`ids`] | names of groups, devices, heads |
//! | [`key`] | the key that clients pin, `scrl1…` |
//! | [`log`] | the hash chain of a log |
//! | [`receipt`] | the directory's signature of a log position; announcements |
//! | [`evidence`] | proof that a directory showed two histories |
//! | [`request`], [`response`] | what clients and directories say to each other |
//! | [`directory`] | the state: requests in, responses and writes out |
//! | [`follower`] | the client: one member's view of a log |
//! | [`codec`] | what messages share of their form |
//!
//! Everything here is pure: no sockets, files, threads, clocks or randomness. `docs/WIRE.md`, section 25, has the bytes.
//!
//! # What a hostile directory can do
//!
//! Nobody trusts it for safety: members judge each entry alike (D1), and all content proves itself. It can do this:
//!
//! | a relay that | does to a member | what shows it |
//! |---|---|---|
//! | forks | shows two members two logs | one receipt that they exchange: [`follower::Follower::exchange`] gives [`evidence::Evidence`] |
//! | rewinds, forgets | shows an older log, or none | [`follower::Misbehaviour::RolledBack`]; when the log grows again, evidence |
//! | changes, leaves out or reorders entries | – | entries do not lead to the receipt: [`follower::Misbehaviour::WrongEntries`] |
//! | signs such entries, too | shows a history of its own | as for a fork. Sealed entries do not open: they are void |
//! | withholds entries from one member | keeps it in an old epoch | a receipt or announcement of another member: [`follower::Misbehaviour::Withheld`]. Without one, nothing: members' beacons do (D2) |
//! | withholds blobs, packages or mail | keeps a device out, or makes it join externally | the request's answer says "none". Nothing proves that the directory has it |
//! | swaps blobs | – | the hash: [`follower::Misbehaviour::WrongContent`] |
//! | swaps packages or mail | gives the wrong one, or one twice | members verify the content. A package that two commits use shows in the log |
//! | accepts half of an append | lets a commit in without its Welcomes | the newcomer gets nothing and joins externally |
//! | accepts an append and denies it | makes its author think that it lost, or was refused | the entry is in the log, at this member or another one |
//! | replays requests | – | an append expects a head that is passed; other requests are idempotent, or their number is old |
//! | replays responses | – | as for one that rewinds |
//! | refuses, delays | stops the group | the silence |
//! | says that entries are gone which it has | makes a member come in anew | its receipts, compared with others' as for a fork |
//!
//! Of two honest-looking branches a relay cannot choose the one that stands: members do, by D2.
//!
//! # What a hostile client can do
//!
//! Without a group's id: nothing but found groups of its own, at a rate for all founders together; a shell that knows where
//! requests come from should limit them there, too. With the id: read sealed bytes. With the joiner key, which former members
//! keep: append void entries, take key packages, delete mail, and push out old blobs and entries, all at the rates of
//! [`sealcast_wire::limits`] (`DIRECTORY_…`). Void entries stop nobody. Keys that they name push out older keys of the log after
//! 64 more; members then sign with the joiner key. What is missing makes members come in anew; it never misleads them.

#![forbid(unsafe_code)]

pub mod codec;
pub mod directory;
pub mod evidence;
pub mod follower;
pub mod ids;
pub mod key;
pub mod log;
pub mod receipt;
pub mod request;
pub mod response;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;

/// The version of requests, responses, announcements, evidence and saved state: their first byte.
pub const VERSION: u8 = 1;
