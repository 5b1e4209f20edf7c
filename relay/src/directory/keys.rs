//! The keys that may append to a group's log, beside its joiner key: a tree, since each was named by another one.
//!
//! ```text
//! joiner key ─┬▶ of epoch 1 ─▶ of epoch 2 ─┬▶ of epoch 3        what members name
//!             │                            └▶ x ─▶ …            what somebody names whom epoch 3 has evicted
//!             └▶ y                                              what a former member names by the joiner key
//! ```
//! The directory cannot tell x from the key of epoch 3. It gives each branch an equal part of the room: who names many keys pushes
//! out its own. The oldest keys go first, which newer ones have superseded. A key that several named is in the tree below each of
//! them, so that nobody takes it out of another branch.

use sealcast_wire::{Reader, Writer, limits};

use super::rows::Value;
use crate::codec::FormatError;
use crate::ids::AppendKey;

/// The keys of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Keys {
    /// By the time at which they were named.
    named: Vec<Named>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Named {
    key: AppendKey,
    /// The index of the key that named it; `None` for the joiner key.
    by: Option<u8>,
    /// Whether it, or a key whose place it took, has signed an append.
    has_signed: bool,
}

impl Keys {
    /// Those of a group whose record is of an older version: nobody knows who named them.
    pub(super) fn of_list(keys: &[AppendKey]) -> Keys {
        Keys { named: keys.iter().map(|key| Named { key: *key, by: None, has_signed: true }).collect() }
    }

    pub(super) fn contains(&self, key: &AppendKey) -> bool {
        self.named.iter().any(|it| it.key == *key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &AppendKey> {
        self.named.iter().map(|it| &it.key)
    }

    /// Where a key is: below each that named it.
    fn places(&self, key: &AppendKey) -> Vec<u8> {
        (0..).zip(&self.named).filter(|(_, it)| it.key == *key).map(|(at, _)| at).collect()
    }

    /// Those that this key named, or the joiner key.
    fn below(&self, of: Option<u8>) -> impl Iterator<Item = u8> {
        (0..).zip(&self.named).filter(move |(_, it)| it.by == of).map(|(at, _)| at)
    }

    /// An append is kept: who signed it, `None` for the joiner key, and the key that it names. Whether anything changed.
    pub(super) fn appended(&mut self, signer: Option<&AppendKey>, names: Option<&AppendKey>) -> bool {
        let before = self.clone();
        match signer {
            Some(signer) => {
                // Places below it move when one goes, so that they are looked for anew.
                for index in 0..self.places(signer).len() {
                    let Some(by) = self.places(signer).get(index).copied() else { break };
                    self.named[usize::from(by)].has_signed = true;
                    names.into_iter().for_each(|key| self.name(Some(by), key));
                }
            }
            None => names.filter(|key| !self.contains(key)).into_iter().for_each(|key| self.name(None, key)),
        }
        *self != before
    }

    fn name(&mut self, by: Option<u8>, key: &AppendKey) {
        let mut above = std::iter::successors(by, |at| self.named[usize::from(*at)].by);
        let is_known = above.any(|at| self.named[usize::from(at)].key == *key)
            || self.below(by).any(|at| self.named[usize::from(at)].key == *key);
        if is_known || by.is_some() && self.below(by).count() >= limits::RELAY_KEYS_OF_ONE {
            return;
        }
        // Who came by an external commit could name its epoch by the joiner key alone: members take the key into their branch.
        let is_leaf_below_root =
            |at: &u8| self.named[usize::from(*at)].by.is_none() && self.below(Some(*at)).next().is_none();
        match self.places(key).into_iter().find(is_leaf_below_root) {
            Some(at) if by.is_some() => self.named[usize::from(at)].by = by,
            _ => self.named.push(Named { key: *key, by, has_signed: false }),
        }
        if self.named.len() > limits::RELAY_KEYS_NAMED {
            self.drop_one();
        }
    }

    /// How many keys there are in the branch that begins with each.
    fn sizes(&self) -> Vec<usize> {
        let mut sizes = vec![0; self.named.len()];
        for at in (0..).take(self.named.len()) {
            std::iter::successors(Some(at), |it| self.named[usize::from(*it)].by)
                .for_each(|it| sizes[usize::from(it)] += 1);
        }
        sizes
    }

    /// The one that was named last is too many: one of the greatest branch goes, and of the greatest one in that.
    fn drop_one(&mut self) {
        let (sizes, newest) = (self.sizes(), self.named.len() as u8 - 1);
        let (mut at, mut superseded) = (None, None);
        loop {
            let below: Vec<u8> = self.below(at).collect();
            let most = below.iter().map(|it| sizes[usize::from(*it)]).max();
            let Some(most) = most else { break };
            if let (1, Some(at)) = (below.len(), at) {
                superseded.get_or_insert(at);
            }
            let mut greatest: Vec<u8> = below.into_iter().filter(|it| sizes[usize::from(*it)] == most).collect();
            // What the joiner key named last stays until it names another one; below others the first ones stay.
            if at.is_none() && greatest.len() > 1 {
                greatest.retain(|it| *it != newest);
            }
            // Below the joiner key lie branches that nobody uses: of newcomers whose key nobody took into another one.
            let is_unused = |it: &&u8| at.is_none() && most == 1 && !self.named[usize::from(**it)].has_signed;
            at = greatest.iter().find(is_unused).or(greatest.last()).copied();
        }
        match (superseded, at) {
            (Some(at), _) => self.supersede(at),
            (None, Some(at)) => self.remove(at),
            (None, None) => {}
        }
    }

    /// The key below one takes its place.
    fn supersede(&mut self, at: u8) {
        let Some(next) = self.below(Some(at)).next() else { return };
        for it in &mut self.named {
            if it.by == Some(next) {
                it.by = Some(at);
            }
        }
        let Named { key, has_signed, .. } = self.named[usize::from(next)];
        let place = &mut self.named[usize::from(at)];
        (place.key, place.has_signed) = (key, place.has_signed || has_signed);
        self.remove(next);
    }

    /// Removes a key that none comes from.
    fn remove(&mut self, at: u8) {
        self.named.remove(usize::from(at));
        for it in &mut self.named {
            it.by = it.by.map(|by| if by > at { by - 1 } else { by });
        }
    }
}

impl Value for Keys {
    fn write(&self, w: &mut Writer) {
        for it in &self.named {
            w.raw(&it.key).u8(it.by.map_or(0, |by| by + 1)).u8(u8::from(it.has_signed));
        }
    }

    fn read(r: &mut Reader<'_>) -> Result<Keys, FormatError> {
        let mut keys = Keys::default();
        while r.remaining() > 0 {
            let (key, by, has_signed) = (r.array()?, r.u8()?.checked_sub(1), r.u8()? == 1);
            keys.named.push(Named { key, by, has_signed });
        }
        let count = keys.named.len();
        let is_sound = count <= limits::RELAY_KEYS_NAMED
            && keys.named.iter().all(|it| it.by.is_none_or(|by| usize::from(by) < count))
            // From each a way leads to the joiner key.
            && (0..).take(count).all(|at| {
                std::iter::successors(Some(at), |it: &u8| keys.named[usize::from(*it)].by).take(count + 1).count() <= count
            });
        if is_sound { Ok(keys) } else { Err(FormatError::Malformed) }
    }
}

const _: () = assert!(limits::RELAY_KEYS_NAMED < 255);

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u16) -> AppendKey {
        let mut key = [0; 32];
        key[..2].copy_from_slice(&n.to_be_bytes());
        key
    }

    /// A key names another one; 0 is the joiner key.
    fn name(keys: &mut Keys, by: u16, key_named: u16) {
        let signer = key(by);
        keys.appended((by != 0).then_some(&signer), Some(&key(key_named)));
        let mut w = Writer::new();
        keys.write(&mut w);
        let bytes = w.finish();
        assert_eq!(Keys::of(&bytes).as_ref(), Ok(&*keys), "it can be written and read");
        assert!(keys.named.len() <= limits::RELAY_KEYS_NAMED);
    }

    /// Members go through epochs 1, 2, …, and each of their commits names the next one's key.
    fn chain(last: u16) -> Keys {
        let mut keys = Keys::default();
        (0..last).for_each(|by| name(&mut keys, by, by + 1));
        keys
    }

    #[test]
    fn of_a_chain_the_newest_keys_remain() {
        let keys = chain(500);
        let kept: Vec<AppendKey> = keys.iter().copied().collect();
        assert_eq!(kept, (437..=500).map(key).collect::<Vec<_>>());
    }

    #[test]
    fn rule_d1_who_was_evicted_pushes_out_no_key_that_it_does_not_know() {
        // Epoch 11 has evicted a holder of the keys up to that of epoch 10.
        let mut keys = chain(11);
        let mut known: Vec<u16> = (0..=10).collect();
        for junk in 1000..3000 {
            let by = known[usize::from(junk) * 31 % known.len()];
            name(&mut keys, by, junk);
            known.push(junk);
            assert!(keys.contains(&key(11)), "after {} keys", junk - 999);
        }
        // Members go on beside it: by their newest keys alone.
        for epoch in 11..300 {
            name(&mut keys, epoch, epoch + 1);
            assert!(keys.contains(&key(epoch + 1)), "epoch {}", epoch + 1);
            for junk in 0..7 {
                let signer = known[known.len() - 1 - usize::from(junk) * 3];
                name(&mut keys, signer, 10_000 + epoch * 7 + junk);
                known.push(10_000 + epoch * 7 + junk);
            }
        }
    }

    #[test]
    fn rule_d1_a_chain_of_junk_is_no_better_than_many_keys() {
        let mut keys = chain(11);
        (1000..1200).for_each(|junk| name(&mut keys, if junk == 1000 { 10 } else { junk - 1 }, junk));
        assert!(keys.contains(&key(11)));
        (2000..2200).for_each(|junk| name(&mut keys, if junk == 2000 { 0 } else { junk - 1 }, junk));
        assert!(keys.contains(&key(11)));
    }

    #[test]
    fn rule_d1_a_key_that_a_newcomer_named_comes_into_the_branch_of_members() {
        let mut keys = chain(5);
        // By external commits, each of which the joiner key signs: members take the keys up with what they append next.
        for epoch in 6..200 {
            name(&mut keys, 0, epoch);
            name(&mut keys, epoch - 1, epoch);
        }
        (1000..1200).for_each(|junk| name(&mut keys, 0, junk));
        assert!(keys.contains(&key(199)) && !keys.contains(&key(6)));
        // Without that, the newest ones remain as long as nobody floods.
        let mut keys = Keys::default();
        (1..500).for_each(|epoch| name(&mut keys, 0, epoch));
        assert!(keys.contains(&key(499)) && !keys.contains(&key(1)));
    }

    #[test]
    fn rule_d1_nobody_takes_a_key_out_of_a_branch_or_makes_a_ring() {
        let mut keys = chain(3);
        name(&mut keys, 0, 10);
        let before = keys.clone();
        // Above it, the same, and right below the root once more.
        [(3, 1), (3, 3), (1, 1), (1, 2), (0, 3)].into_iter().for_each(|(by, it)| name(&mut keys, by, it));
        let unsigned = |keys: &Keys| keys.named.iter().map(|it| (it.key, it.by)).collect::<Vec<_>>();
        assert_eq!(unsigned(&keys), unsigned(&before));
        // Another branch has a copy of its own.
        name(&mut keys, 10, 2);
        assert_eq!(keys.places(&key(2)).len(), 2);
        // One has room for eight.
        (20..40).for_each(|it| name(&mut keys, 10, it));
        assert_eq!(keys.iter().filter(|it| **it >= key(20)).count(), limits::RELAY_KEYS_OF_ONE - 1);
    }

    #[test]
    fn rule_d1_who_takes_a_newcomer_s_key_into_its_own_branch_takes_it_from_nobody() {
        let mut keys = chain(11);
        name(&mut keys, 0, 1000);
        (1001..1008).for_each(|junk| name(&mut keys, 1000, junk));
        // A newcomer's commit, which the former member is faster to name than members.
        name(&mut keys, 0, 12);
        name(&mut keys, 1000, 12);
        (11..20).for_each(|by| name(&mut keys, by, by + 1));
        for junk in 2000..2200 {
            name(&mut keys, 0, junk);
            name(&mut keys, junk, 5000 + junk);
            assert!(keys.contains(&key(20)), "{junk}");
        }
        // A key that is not known comes in by the joiner key, and stays for as long as nobody names another one so.
        name(&mut keys, 0, 100);
        assert!(keys.contains(&key(100)));
        name(&mut keys, 100, 101);
        assert!(keys.contains(&key(101)));
    }

    #[test]
    fn rule_g2_a_ring_in_a_row_is_refused() {
        let mut row = Vec::new();
        for by in [2_u8, 1] {
            row.extend([0; 32]);
            row.extend([by, 0]);
        }
        assert!(Keys::of(&row).is_err());
        row[32] = 0;
        assert!(Keys::of(&row).is_ok());
        row[32] = 3;
        assert!(Keys::of(&row).is_err());
    }
}
