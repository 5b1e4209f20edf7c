//! Names that say nothing to the directory: 32 bytes each, which members derive from the group's secrets.

use std::fmt;

use sealcast_crypto::hash::Transcript;

/// A group at a directory: the hash of its joiner key. Only a holder of that key can found the group, so nobody else can take
/// its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub [u8; 32]);

/// A device of a member or newcomer, for its key packages and its mail. Members derive it from a secret of the group and the
/// device's certificate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub [u8; 32]);

/// The hash of a log up to one of its positions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Head(pub [u8; 32]);

/// An Ed25519 public key with which appends are signed, as it is on the wire. It is judged when it is used.
pub type AppendKey = [u8; 32];

/// SHA-256 of a blob.
pub type BlobHash = [u8; 32];

impl GroupId {
    /// The group of a joiner key, which members derive from the group's bootstrap key.
    pub fn of(joiner: &AppendKey) -> GroupId {
        GroupId(Transcript::of("sealcast/v1/relay/group", joiner))
    }
}

impl fmt::Debug for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        short(f, "group", &self.0)
    }
}

impl fmt::Debug for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        short(f, "device", &self.0)
    }
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        short(f, "head", &self.0)
    }
}

fn short(f: &mut fmt::Formatter<'_>, what: &str, bytes: &[u8; 32]) -> fmt::Result {
    write!(f, "{what}:")?;
    bytes.iter().take(4).try_for_each(|byte| write!(f, "{byte:02x}"))
}
