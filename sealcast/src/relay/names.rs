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

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha20Rng;
    use rand_core::SeedableRng as _;
    use sealcast_crypto::identity::{Act, Authority, MemberSecret, Request, Right, Rights};
    use sealcast_crypto::signature::Algorithm;
    use sealcast_wire::Utc;

    use super::*;

    #[test]
    fn rule_d4_a_group_has_one_lasting_name_that_says_nothing_and_only_members_know() {
        const NOW: Utc = Utc(1_790_000_000);
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let mut certified = |authority: &mut Authority, name: &str| {
            let secret = MemberSecret::generate(Algorithm::Ed25519, &mut rng);
            let mut rights = Rights::none();
            ["ward", "desk"].into_iter().for_each(|group| rights.grant(Right::new(group, Act::Both, "#").unwrap()));
            let request = Request { name: name.into(), keys: secret.public(), rights, attributes: vec![] };
            let certificate = authority.issue(&request, NOW, 86_400).unwrap();
            let identity = Identity::new(&certificate, &secret, authority.anchor().clone()).unwrap();
            let key = |group| (group, authority.bootstrap_key(group));
            [key("ward"), key("desk")].into_iter().fold(identity, |it, (group, key)| it.with_bootstrap_key(group, key))
        };
        let create =
            |seed| Authority::create("ca", Algorithm::P256, NOW, &mut ChaCha20Rng::seed_from_u64(seed)).unwrap();
        let (mut ours, mut theirs) = (create(7), create(8));
        let (ann, bob) = (certified(&mut ours, "ann"), certified(&mut ours, "bob"));
        let outsider = certified(&mut theirs, "ann");
        let names = |identity, group| {
            let Names { group, messages, announcements, .. } = Names::of(group, Some(identity));
            (group.0, messages, announcements)
        };
        let ward = names(&ann, "ward");
        assert_eq!(ward, names(&bob, "ward"), "it is the same for every member, and at every start");
        for (who, other) in [(&ann, names(&ann, "desk")), (&outsider, names(&outsider, "ward"))] {
            assert!(ward.0 != other.0 && ward.1 != other.1, "{:?}", who.certificate().name);
        }
        assert_eq!((ward.1.len(), ward.2.len()), (64, 68), "hex of what is derived, and no word of it");
        let devices = Names::of("ward", Some(&ann)).devices;
        let [one, other] = [&ann, &bob].map(|it| devices.name(&it.certificate().hash));
        assert_ne!(one, other);
        assert_ne!(one.0, ann.certificate().hash.0);
    }
}
