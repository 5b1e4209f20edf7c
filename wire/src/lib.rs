//! What all parts of Sealcast speak: members and views, time, addresses, guarantees, the sealing
//! capability, the datagram's outer frame, and bytes parsed with checked lengths.
//!
//! This crate holds no mathematics, no sockets, no clocks and no randomness. `keys` and `delivery`
//! meet only in the types defined here.

#![forbid(unsafe_code)]

pub mod address;
pub mod codec;
pub mod dropped;
pub mod envelope;
pub mod evidence;
pub mod fetch;
pub mod frame;
pub mod guarantee;
pub mod limits;
pub mod member;
pub mod protect;
pub mod roster;
pub mod time;

pub use address::{Address, Source, To};
pub use codec::{Malformed, Reader, Writer};
pub use dropped::{Dropped, Drops, Reason};
pub use envelope::{Envelope, SealMessage, Sealed, SealedHeader, Unsealed};
pub use evidence::{Culprit, Evidence};
pub use fetch::{Fetch, FetchId, Fetched, Fetches, KeyPackages};
pub use frame::{Domain, Header};
pub use guarantee::{Agreement, Guarantee, Lane};
pub use member::{CertHash, Change, EpochId, Flush, Incarnation, Member, MemberId, Slot, View};
pub use protect::{Access, Exhausted, PayloadContext, Protect, SealPayload};
pub use roster::Roster;
pub use time::{Monotonic, Now, Took, Utc};
