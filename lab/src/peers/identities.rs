//! Identities for the processes of a measurement: an authority of the hour, its members in a private
//! folder that goes with it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng as _;
use sealcast::config::{Home, KeptIdentity, Membership, Overwrite};
use sealcast_crypto::identity::{Act, Authority, MemberSecret, Request, Right, Rights};
use sealcast_crypto::signature::Algorithm;
use sealcast_wire::Utc;
use tempfile::TempDir;

use crate::Failure;

/// The group that the lab's members belong to.
pub const GROUP: &str = "lab";

/// A folder of identities, one per member; removed when dropped.
#[derive(Debug)]
pub struct Identities {
    folder: TempDir,
    members: usize,
}

impl Identities {
    /// Issues certificates to `members`: all may publish and subscribe to everything; the first two
    /// may evict.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub fn new(members: usize) -> Result<Identities, Failure> {
        let folder = tempfile::Builder::new().prefix("sealcast-lab-").tempdir()?;
        let home = Home::at(folder.path());
        let made = Identities { folder, members };
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)?;
        let mut rng = ChaCha20Rng::from_seed(seed);
        let now = Utc(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?);
        let begin = Utc(now.0 - 60);
        let mut authority = Authority::create("lab CA", Algorithm::Ed25519, begin, &mut rng)?;
        for i in 0..members {
            let secret = MemberSecret::generate(Algorithm::Ed25519, &mut rng);
            let mut rights = Rights::none();
            rights.grant(Right::new(GROUP, Act::Both, "#")?);
            if i < 2 {
                rights.grant(Right::new(GROUP, Act::Evict, "#")?);
            }
            let request = Request { name: made.name(i), keys: secret.public(), rights, attributes: Vec::new() };
            let certificate = authority.issue(&request, begin, VALIDITY_SECONDS)?;
            let anchor = authority.anchor().clone();
            let bootstrap_keys = BTreeMap::from([(GROUP.to_string(), authority.bootstrap_key(GROUP))]);
            let mut kept = KeptIdentity::new(&home, &made.name(i), secret);
            kept.membership = Some(Membership { certificate, anchor, policy: None, bootstrap_keys });
            kept.save(Overwrite::Never)?;
        }
        Ok(made)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.members
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members == 0
    }

    /// The name in the certificate of member `i`.
    pub fn name(&self, i: usize) -> String {
        format!("robot{i}")
    }

    /// The folder that all of them are found in.
    pub fn home(&self) -> &Path {
        self.folder.path()
    }
}

/// Long enough for the longest experiment.
const VALIDITY_SECONDS: i64 = 7 * 24 * 60 * 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_loaded_as_they_were_issued_and_go_with_their_folder() {
        let all = Identities::new(3).expect("issued");
        let load = |i| KeptIdentity::load(&Home::at(all.home()), &all.name(i)).expect("kept").identity().expect("good");
        let (first, last) = (load(0).expect("issued"), load(2).expect("issued"));
        assert_eq!(&*last.certificate().name, "robot2");
        assert!(first.certificate().rights.may_evict(GROUP, &last.certificate().rights));
        assert!(!last.certificate().rights.may_evict(GROUP, &first.certificate().rights));
        assert!(first.has_bootstrap_key(GROUP));
        let home = all.home().to_owned();
        drop(all);
        assert!(!home.exists());
    }
}
