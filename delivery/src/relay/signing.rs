//! By which key a member signs what it asks of the directory.
//!
//! The directory believes keys that appends named (`relay::directory`), and takes little of the joiner key, which former members
//! have, too. A commit names the key of the epoch that it leads to. Where a newcomer's commit did so, which only the joiner key
//! signs, or none did, members name it once more with the first thing that they append, by the key of the epoch before.

use std::collections::VecDeque;
use std::sync::Arc;

use sealcast_crypto::signature::OriginKey;
use sealcast_relay::ids::AppendKey;
use sealcast_relay::request::Signer;
use sealcast_wire::limits;

/// The keys of a member.
pub(super) struct Signing {
    joiner: Box<dyn Signer + Send>,
    /// Those of the last epochs, the newest first.
    epochs: VecDeque<EpochKey>,
    /// Whether an append of ours was signed by the newest one, or named it.
    is_taken_in: bool,
    /// By which an append of ours named the newest one.
    named_by: Option<AppendKey>,
}

struct EpochKey {
    key: Arc<OriginKey>,
    /// The directory does not know it.
    is_unknown: bool,
}

impl Signing {
    pub(super) fn new(joiner: Box<dyn Signer + Send>) -> Signing {
        Signing { joiner, epochs: VecDeque::new(), is_taken_in: false, named_by: None }
    }

    /// The key of the group's joiners.
    pub(super) fn joiner(&self) -> &dyn Signer {
        &*self.joiner
    }

    /// An epoch begins.
    pub(super) fn begin(&mut self, key: &Arc<OriginKey>) {
        if self.newest().is_some_and(|it| it == key.public_bytes()) {
            return;
        }
        self.epochs.retain(|it| !it.is_unknown);
        self.epochs.push_front(EpochKey { key: key.clone(), is_unknown: false });
        self.epochs.truncate(limits::RELAY_KEYS_HELD);
        (self.is_taken_in, self.named_by) = (false, None);
    }

    fn newest(&self) -> Option<AppendKey> {
        self.epochs.front().map(|it| it.key.public_bytes())
    }

    /// Who signs an append that names this key, or none by itself, and what it names then.
    pub(super) fn for_append(&self, names: Option<AppendKey>) -> (&dyn Signer, Option<AppendKey>) {
        let before = self.epochs.get(1).filter(|it| !self.is_taken_in && !it.is_unknown);
        let signer = before.map_or_else(|| self.for_others(), |it| &*it.key);
        let newest = self.newest().filter(|it| *it != signer.public());
        (signer, names.or(newest))
    }

    /// Who signs anything else.
    pub(super) fn for_others(&self) -> &dyn Signer {
        match self.epochs.iter().find(|it| !it.is_unknown) {
            Some(it) => &*it.key,
            None => self.joiner(),
        }
    }

    /// An append of ours is in the log: who signed it, and what it names.
    pub(super) fn appended(&mut self, signer: &AppendKey, names: Option<AppendKey>) {
        let newest = self.newest();
        if newest.is_some() && names == newest {
            (self.is_taken_in, self.named_by) = (true, Some(*signer));
        }
        if newest == Some(*signer) {
            self.is_taken_in = true;
        }
    }

    /// Somebody's append names this key: the directory may know it by now.
    pub(super) fn named(&mut self, key: &AppendKey) {
        self.epochs.iter_mut().take(1).filter(|it| it.key.public_bytes() == *key).for_each(|it| it.is_unknown = false);
    }

    /// The directory does not know the key that signed: whether there is another one.
    pub(super) fn refused(&mut self, signer: &AppendKey) -> bool {
        let is_newest = self.newest().is_some_and(|it| it == *signer);
        // One by which it was named in vain names nothing any more: it has named too many.
        let in_vain = self.named_by.take_if(|_| is_newest);
        let mut is_ours = false;
        for it in &mut self.epochs {
            let key = it.key.public_bytes();
            is_ours |= key == *signer;
            it.is_unknown |= key == *signer || in_vain == Some(key);
        }
        self.is_taken_in &= !is_newest;
        is_ours
    }
}

#[cfg(test)]
mod tests {
    use sealcast_crypto::secret::Secret;

    use super::*;

    fn key(seed: u8) -> Arc<OriginKey> {
        Arc::new(OriginKey::from_seed(&Secret::from_bytes([seed; 32])))
    }

    fn public(seed: u8) -> AppendKey {
        key(seed).public_bytes()
    }

    fn signing() -> Signing {
        Signing::new(Box::new(OriginKey::from_seed(&Secret::from_bytes([0; 32]))))
    }

    fn append(it: &Signing, names: Option<u8>) -> (AppendKey, Option<AppendKey>) {
        let (signer, names) = it.for_append(names.map(public));
        (signer.public(), names)
    }

    #[test]
    fn rule_d1_members_sign_by_keys_of_epochs_and_name_the_next_one() {
        let mut it = signing();
        assert_eq!(append(&it, None), (public(0), None), "outside there is the joiner key alone");
        assert_eq!(append(&it, Some(1)), (public(0), Some(public(1))), "an external commit");
        it.begin(&key(1));
        assert_eq!((append(&it, None), it.for_others().public()), ((public(1), None), public(1)));
        assert_eq!(append(&it, Some(2)), (public(1), Some(public(2))), "a commit");
        it.begin(&key(2));
        it.begin(&key(2));
        assert_eq!(append(&it, None), (public(1), Some(public(2))), "it names the newest once more");
        // One that another key signed, and that named nothing, says nothing of it.
        it.appended(&public(1), None);
        assert_eq!(append(&it, None), (public(1), Some(public(2))));
        it.appended(&public(1), Some(public(2)));
        assert_eq!(append(&it, None), (public(2), None));
        // A key that has named too many others names it in vain: the joiner key does.
        assert!(it.refused(&public(2)));
        assert_eq!(append(&it, None), (public(0), Some(public(2))));
        it.named(&public(2));
        assert_eq!((append(&it, None), it.for_others().public()), ((public(2), None), public(2)));
    }

    #[test]
    fn a_key_that_the_directory_does_not_know_is_named_by_an_older_one_or_the_joiner_key() {
        let mut it = signing();
        (1..=9).for_each(|epoch| it.begin(&key(epoch)));
        assert_eq!(it.epochs.len(), limits::RELAY_KEYS_HELD);
        assert!(it.refused(&public(9)), "a request that is no append, before it was named");
        assert_eq!((append(&it, None), it.for_others().public()), ((public(8), Some(public(9))), public(8)));
        for epoch in [8, 7, 6] {
            assert!(it.refused(&public(epoch)));
        }
        assert_eq!(append(&it, None), (public(0), Some(public(9))));
        assert!(!it.refused(&public(0)), "nothing is left");
        it.appended(&public(0), Some(public(9)));
        it.named(&public(9));
        assert_eq!((append(&it, None), it.for_others().public()), ((public(9), None), public(9)));
        // It was pushed out, and comes in again.
        assert!(it.refused(&public(9)));
        assert_eq!(append(&it, None), (public(0), Some(public(9))));
        it.begin(&key(10));
        assert_eq!((append(&it, None), it.epochs.len()), ((public(10), None), 1));
    }
}
