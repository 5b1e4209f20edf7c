//! Contributory keys over multicast: the fixture of the LAN scenarios.

use std::sync::{Arc, LazyLock};

use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;
use sealcast::url::OriginMode;
use sealcast_crypto::identity::authority::{Authority, Request};
use sealcast_crypto::identity::holder::Identity;
use sealcast_crypto::identity::keytext::MemberSecret;
use sealcast_crypto::identity::rights::{Act, Right};
use sealcast_crypto::signature::Algorithm;
use sealcast_delivery::multicast::{self, Multicast};
use sealcast_keys::contributory::misbehaving::Rule;
use sealcast_keys::contributory::{Config, Contributory, Memo, Versions};
use sealcast_sim::clock::UTC_AT_ZERO;
use sealcast_sim::{Birth, Records};
use sealcast_wire::{CertHash, Now, Utc, limits};

use super::fixture::{Fixture, Player, TOPIC};
use super::versions::VersionedMember;
use crate::member::{Member, keys_records};
use crate::misbehaviour::{self, Misbehaviour};

/// A member as these scenarios run it.
pub type Robot = Member<Contributory, Multicast>;

/// Robots of one authority.
#[derive(Clone)]
pub struct Robots {
    memo: Option<Arc<Memo>>,
    /// Who only writes the topic of test traffic.
    sensor: Option<usize>,
    /// Rules that they all leave out: a planted fault.
    without: &'static [Rule],
    /// The versions of the wire that each speaks, where not all speak what this program does.
    versions: Option<fn(usize) -> Versions>,
}

impl Robots {
    /// A fixture; what one of its members verified, the others need not verify again.
    pub fn new() -> Robots {
        Robots { memo: Some(Arc::default()), sensor: None, without: &[], versions: None }
    }

    /// The same with one member that only writes the topic of test traffic.
    pub fn with_sensor(sensor: usize) -> Robots {
        Robots { sensor: Some(sensor), ..Robots::new() }
    }

    /// The same, each of which speaks other versions of the wire.
    pub fn speaking(versions: fn(usize) -> Versions) -> Robots {
        Robots { versions: Some(versions), ..Robots::new() }
    }

    /// The same for members that share nothing.
    pub(super) fn without_memo(&self) -> Robots {
        Robots { memo: None, ..self.clone() }
    }

    /// What one member verified, the others need not verify again.
    pub(super) fn memo(&self) -> Option<Arc<Memo>> {
        self.memo.clone()
    }

    fn identity(&self, member: usize) -> Arc<Identity> {
        if self.sensor == Some(member) { SENSOR.clone() } else { identity(member) }
    }

    /// How a member's processes are made.
    fn make(&self, member: usize) -> impl Fn(Now, [u8; 32], &'static [Rule], &Records) -> Robot + 'static {
        let mut config = Config { memo: self.memo.clone(), ..Config::new(GROUP, self.identity(member)) };
        config.versions = self.versions.map_or(config.versions, |versions| versions(member));
        move |now, seed, without, records| robot(Config { without, ..config.clone() }, seed, now, records)
    }
}

/// One process of a robot.
pub(crate) fn robot(config: Config, seed: [u8; 32], now: Now, records: &Records) -> Robot {
    let records: Vec<(u64, Vec<u8>)> = keys_records(records).into_iter().collect();
    let keys = Contributory::restore(config, seed, now, &records);
    Member::new(now, keys, Multicast::new(multicast::Config::default()), OriginMode::Auto)
}

impl Default for Robots {
    fn default() -> Robots {
        Robots::new()
    }
}

impl Fixture for Robots {
    fn cert(&self, member: usize) -> CertHash {
        self.identity(member).certificate().hash
    }

    fn member(&self, member: usize, _life: u32, seed: [u8; 32]) -> Birth<Player> {
        let (make, without) = (self.make(member), self.without);
        if self.versions.is_some() {
            return Box::new(move |now, records| {
                Box::new(VersionedMember::new(now, make(now, seed, without, records)))
            });
        }
        Box::new(move |now, records| Box::new(make(now, seed, without, records)))
    }

    fn actor(&self, kind: Misbehaviour, seed: [u8; 32]) -> Option<Birth<Player>> {
        Some(misbehaviour::outsider(kind, seed))
    }

    fn imposter(&self, member: usize, kind: Misbehaviour, seed: [u8; 32]) -> Option<Birth<Player>> {
        let make = self.make(member);
        let make = move |now, seed, without: &'static [Rule]| make(now, seed, without, &Records::new());
        misbehaviour::insider(member, kind, seed, Box::new(make), &|member| self.cert(member))
    }

    fn lacking(&self, without: &'static [Rule]) -> Option<Box<dyn Fixture>> {
        Some(Box::new(Robots { without, ..self.clone() }))
    }

    fn apart(&self) -> Option<Box<dyn Fixture>> {
        Some(Box::new(self.without_memo()))
    }

    fn secrets(&self) -> Vec<Vec<u8>> {
        vec![TOPIC.into(), PATTERN.into(), b"wall-e".to_vec()]
    }
}

/// The identity of a robot; robot 0 may evict.
pub fn identity(member: usize) -> Arc<Identity> {
    IDENTITIES[member].clone()
}

/// Of who only writes the topic of test traffic.
static SENSOR: LazyLock<Arc<Identity>> = LazyLock::new(|| identity(limits::MEMBERS_MAX + 1));

/// All made at once and in order, so that every run has the same ones.
static IDENTITIES: LazyLock<Vec<Arc<Identity>>> = LazyLock::new(|| {
    let mut rng = ChaCha8Rng::seed_from_u64(2026);
    let issued = Utc(UTC_AT_ZERO - 30 * 86_400);
    let mut authority = Authority::create("ca", Algorithm::Ed25519, issued, &mut rng).expect("a new authority");
    let mut identities = Vec::new();
    for member in 0..=limits::MEMBERS_MAX + 1 {
        let secret = MemberSecret::generate(Algorithm::Ed25519, &mut rng);
        let mut rights = match member {
            0..=limits::MEMBERS_MAX => vec![Right::new(GROUP, Act::Both, "#"), Right::new(GROUP, Act::Both, PATTERN)],
            _ => vec![Right::new(GROUP, Act::Publish, TOPIC)],
        };
        if member == 0 {
            rights.push(Right::new(GROUP, Act::Evict, "#"));
        }
        let rights = rights.into_iter().map(|r| r.expect("patterns are well formed")).collect();
        let name = format!("wall-e {member}");
        let request = Request { name, keys: secret.public(), rights, attributes: Vec::new() };
        let certificate = authority.issue(&request, issued, 365 * 86_400).expect("rights are encodable");
        let identity = Identity::new(&certificate, &secret, authority.anchor().clone()).expect("its own key");
        identities.push(Arc::new(identity.with_bootstrap_key(GROUP, authority.bootstrap_key(GROUP))));
    }
    identities
});

/// The group's name.
pub const GROUP: &str = "lagoon";
/// A pattern in every certificate, which must never be seen on the wire.
const PATTERN: &str = "zanzibar/#";
