//! Where no directory is: members keep what others ask for, and send it.
//!
//! ```text
//! ENTRY with pieces ─▶ PIECE, PIECE, …              right behind it, by who made the entry
//! SEEK(hashes)      ─▶ PIECE, …                     what was lost, by who keeps it
//! SEEK(certificate) ─▶ PACKAGE                      by the device itself, or a member that the epoch draws; also where a directory is
//! ```
//! All of it travels under the bootstrap key, and proves itself: a piece by its hash, a key package by its signatures.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sealcast_crypto::hash::sha256;
use sealcast_wire::{CertHash, Dropped, Fetch, Monotonic, Now, Slot, Source, To, limits};

use super::engine::Engine;
use super::message::{Message, Sought};
use super::scheme::{Inside, Mls, Timer, slot};

/// What this member keeps for others, and asks them for.
#[derive(Default)]
pub(super) struct Shared {
    /// Pieces by their hash, the oldest first, and when each was sent last, by us or another member.
    pieces: VecDeque<([u8; 32], Vec<u8>, Option<Monotonic>)>,
    /// Sealed key packages of others that prove themselves, and the run of each.
    packages: BTreeMap<CertHash, (u64, Vec<u8>)>,
    /// Ours of last resort, and when it was sent last.
    pub(super) own: Option<(Vec<u8>, Monotonic)>,
    /// Devices that asked to be let in, and when they did so last.
    pub(super) asked: BTreeMap<CertHash, Monotonic>,
    /// What we lack, and how often we asked for it.
    sought: BTreeMap<Fetch, u32>,
}

impl Shared {
    /// What others are asked for.
    pub(super) fn sought(&self) -> impl Iterator<Item = &Fetch> {
        self.sought.keys()
    }

    /// The sealed key package that a device sent.
    pub(super) fn package_of(&self, cert: &CertHash) -> Option<Vec<u8>> {
        self.packages.get(cert).map(|(_, bytes)| bytes.clone())
    }

    /// Whether others are being asked for this.
    pub(super) fn seeks(&self, what: &Fetch) -> bool {
        self.sought.contains_key(what)
    }
}

impl<E: Engine> Mls<E> {
    /// Makes something available to others.
    pub(super) fn keep(&mut self, what: Fetch, bytes: Vec<u8>) {
        match what {
            Fetch::Blob(hash) => {
                let pieces = &mut self.shared.pieces;
                if pieces.iter().any(|(known, ..)| *known == hash) {
                    return;
                }
                if pieces.len() >= limits::MLS_PIECES_KEPT_MAX {
                    pieces.pop_front();
                }
                pieces.push_back((hash, bytes, None));
            }
            Fetch::KeyPackage(_) | Fetch::Shares { .. } | Fetch::Key | Fetch::Mail(_) => {}
        }
    }

    /// Sends those of these pieces that we keep and nobody sent a moment ago.
    pub(super) fn send_pieces(&mut self, now: Now, to: To, hashes: &[[u8; 32]]) {
        let is_due = |at: &Option<Monotonic>| at.is_none_or(|at| now.monotonic.since(at) >= SEND_EVERY);
        let mut due = Vec::new();
        for (hash, bytes, at) in &mut self.shared.pieces {
            if hashes.contains(hash) && is_due(at) {
                *at = Some(now.monotonic);
                due.push(bytes.clone());
            }
        }
        due.into_iter().for_each(|bytes| self.tell(to, &Message::Piece(bytes)));
    }

    /// Asks others for something, soon: it may be on its way.
    pub(super) fn seek(&mut self, now: Now, what: Fetch) {
        if let Fetch::KeyPackage(cert) = what {
            if let Some(bytes) = self.shared.package_of(&cert) {
                return self.package_came(now, cert, &bytes);
            }
            self.timers.sooner(Timer::Seek, now.monotonic);
        } else {
            self.timers.sooner(Timer::Seek, now.monotonic + self.paced(SEEK_AFTER));
        }
        if self.shared.sought.len() < limits::MLS_PIECES_MAX {
            self.shared.sought.entry(what).or_insert(0);
        }
    }

    /// Asks for all that we lack, and for nothing for ever.
    pub(super) fn seek_again(&mut self, now: Now) {
        let sought = &mut self.shared.sought;
        sought.values_mut().for_each(|tries| *tries += 1);
        let gone: Vec<(Fetch, u32)> = sought.extract_if(.., |_, tries| *tries > SEEK_TRIES).collect();
        for (what, _) in gone {
            if let Fetch::KeyPackage(cert) = what {
                self.package_missing(now, cert);
            }
        }
        let sought = &self.shared.sought;
        let Some(tries) = sought.values().max().copied() else { return };
        let mut pieces = Vec::new();
        let mut asked = Vec::new();
        for (what, tries) in sought.iter() {
            match what {
                Fetch::Blob(hash) => pieces.push(*hash),
                Fetch::KeyPackage(cert) => asked.push(Sought::Package { cert: *cert, tries: *tries }),
                Fetch::Shares { .. } | Fetch::Key | Fetch::Mail(_) => {}
            }
        }
        if !pieces.is_empty() {
            asked.push(Sought::Pieces(pieces));
        }
        asked.into_iter().for_each(|it| self.tell(To::Group, &Message::Seek(it)));
        self.timers.set(Timer::Seek, now.monotonic + self.paced(SEEK_AFTER) * (1 << tries.min(SEEK_TRIES)));
    }

    /// Somebody lacks something: each piece goes out once in a while, whatever is asked.
    pub(super) fn hear_seek(&mut self, now: Now, source: &Source, what: &Sought) -> Result<(), Dropped> {
        let to = if let Source::Outside(from) = source { To::Peer(*from) } else { To::Group };
        let is_due = |at: &Monotonic| now.monotonic.since(*at) >= SEND_EVERY;
        match what {
            Sought::Pieces(hashes) => self.send_pieces(now, to, hashes),
            Sought::Package { cert, .. } if *cert == self.me.hash => {
                let Some((bytes, at)) = self.shared.own.as_mut().filter(|(_, at)| is_due(at)) else {
                    return Err(Dropped::Queue);
                };
                *at = now.monotonic;
                let (cert, bytes) = (*cert, bytes.clone());
                self.tell(to, &Message::Package { cert, bytes });
            }
            Sought::Package { cert, tries } => {
                let Some(inside) = self.inside() else { return Ok(()) };
                if inside.drawn(cert, *tries) != Some(slot(inside.engine.own_leaf())) {
                    return Ok(());
                }
                let Some(bytes) = self.shared.package_of(cert) else { return Ok(()) };
                if !self.may_answer(now, *cert) {
                    return Err(Dropped::Queue);
                }
                self.tell(to, &Message::Package { cert: *cert, bytes });
            }
        }
        Ok(())
    }

    /// A piece that we asked for.
    pub(super) fn hear_piece(&mut self, now: Now, bytes: &[u8]) -> Result<(), Dropped> {
        let hash = sha256(bytes);
        // Another member sent what we would.
        if let Some((.., at)) = self.shared.pieces.iter_mut().find(|(known, ..)| *known == hash) {
            *at = Some(now.monotonic);
        }
        self.shared.sought.remove(&Fetch::Blob(hash)).ok_or(Dropped::Stale)?;
        self.piece_came(now, hash, bytes);
        Ok(())
    }

    /// A device's key package of last resort: kept if it proves itself, and used if we wait for it.
    pub(super) fn hear_package(&mut self, now: Now, cert: CertHash, bytes: Vec<u8>) -> Result<(), Dropped> {
        if cert == self.me.hash {
            return Ok(());
        }
        match self.shared.packages.get(&cert) {
            Some((_, known)) if *known == bytes => return Ok(()),
            None if self.shared.packages.len() >= limits::MLS_PACKAGES_KEPT_MAX => return Err(Dropped::Queue),
            Some(_) | None => {}
        }
        let (_, card) = self.read_package(cert, &bytes).ok_or(Dropped::Auth)?;
        // That of an earlier run is of no use to the device.
        if self.shared.packages.get(&cert).is_some_and(|(run, _)| *run >= card.run) {
            return Err(Dropped::Replay);
        }
        self.shared.packages.insert(cert, (card.run, bytes.clone()));
        if self.shared.sought.remove(&Fetch::KeyPackage(cert)).is_some() {
            self.package_came(now, cert, &bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
impl<E: Engine> Mls<E> {
    /// As if it had not heard it.
    pub(super) fn forget_package(&mut self, cert: &CertHash) {
        self.shared.packages.remove(cert);
    }

    /// What others can ask it for.
    pub(super) fn pieces_kept(&self) -> Vec<[u8; 32]> {
        self.shared.pieces.iter().map(|(hash, ..)| *hash).collect()
    }
}

impl<E: Engine> Inside<E> {
    /// Who of us answers a certificate's holder: another one at each try, and at each other one a member that was there not
    /// long ago.
    pub(super) fn drawn(&self, cert: &CertHash, tries: u32) -> Option<Slot> {
        let draw = sha256(&[&self.epoch.to_bytes()[..], &cert.0].concat());
        let draw = u64::from_be_bytes(*draw.first_chunk().expect("8 of 32 bytes"));
        let own = self.leaf_of(cert).map(slot);
        let is_there = |at: &&Slot| own != Some(**at) && self.members.contains_key(at);
        let recent: Vec<Slot> = self.recent.iter().filter(is_there).copied().collect();
        if tries % 2 == 1 && !recent.is_empty() {
            return Some(recent[tries as usize / 2 % recent.len()]);
        }
        // Counted without the asker.
        let others = self.members.len() - usize::from(own.is_some());
        let index = (draw.wrapping_add(u64::from(tries / 2)) % others.max(1) as u64) as usize;
        match own {
            Some(own) if *self.members.nth(index)? >= own => self.members.nth(index + 1).copied(),
            Some(_) | None => self.members.nth(index).copied(),
        }
    }
}

/// What lacks may be on its way for so long.
const SEEK_AFTER: Duration = Duration::from_millis(250);
const SEEK_TRIES: u32 = 5;
/// What was sent is not sent again before.
const SEND_EVERY: Duration = Duration::from_millis(200);
