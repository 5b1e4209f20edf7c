//! What a group and its devices are called at a relay, which learns no name of them (D4, D8).

use sealcast_crypto::identity::Identity;
use sealcast_crypto::kdf::hkdf;
use sealcast_crypto::secret::Secret;
use sealcast_crypto::signature::OriginKey;
use sealcast_relay::ids::{DeviceId, GroupId};
use sealcast_wire::CertHash;

/// Derived from what all who may join know. Former members know it, too: it names, and proves nothing.
pub(crate) struct Names {
    /// Signs requests in the name of all who may join.
    pub(crate) joiner: OriginKey,
    /// The group at the directory.
    pub(crate) group: GroupId,
    /// Where members publish, below the prefix.
    pub(crate) messages: String,
    /// Where the directory announces what it accepted, below the prefix.
    pub(crate) announcements: String,
    pub(crate) devices: Devices,
}

/// Names devices.
pub(crate) struct Devices(Secret<32>);

impl Names {
    /// Those of a group; `identity` is nobody's where nothing is sealed.
    pub(crate) fn of(group: &str, identity: Option<&Identity>) -> Names {
        let secret: Secret<32> = match identity {
            Some(identity) => identity.bootstrap_key(group).derived("relay"),
            None => hkdf(group.as_bytes(), b"", &[b"sealcast/v1/relay/clear"]),
        };
        let derived = |label: &[u8]| hkdf::<32>(secret.expose(), b"", &[b"sealcast/v1/relay", label]);
        let joiner = OriginKey::from_seed(&derived(b"joiner"));
        let group = GroupId::of(&joiner.public_bytes());
        Names {
            joiner,
            group,
            messages: hex::encode(derived(b"topic").expose()),
            announcements: format!("{}/log", hex::encode(group.0)),
            devices: Devices(derived(b"device")),
        }
    }
}

impl Devices {
    /// How the device of a certificate is called.
    pub(crate) fn name(&self, cert: &CertHash) -> DeviceId {
        DeviceId(*hkdf::<32>(self.0.expose(), &cert.0, &[]).expose())
    }
}
