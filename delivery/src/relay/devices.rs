//! What single devices leave and fetch at the directory: key packages, and mail for those who are away.

use std::collections::{BTreeMap, VecDeque};

use sealcast_crypto::hash::sha256;
use sealcast_relay::request::Package;
use sealcast_relay::response::MailItem;
use sealcast_wire::{CertHash, Fetch, FetchId, KeyPackages, Now, Utc, limits};

use super::log::{Log, Purpose};
use crate::Output;

/// A member's own, and what it does for others.
#[derive(Debug, Default)]
pub(super) struct Devices {
    /// Key packages to be kept.
    pub(super) packages: VecDeque<KeyPackages>,
    /// Counts what we have kept of each device, our own and the one for newcomers: one that somebody else counted to the
    /// end keeps back no other.
    numbers: BTreeMap<CertHash, u64>,
    /// The number of the mail that was handed on last: the next request has it deleted.
    pub(super) fetched: u64,
}

impl Devices {
    /// An earlier run that had a clock, or more packages, counted further than we do. Whether there are greater numbers.
    pub(super) fn count_on(&mut self) -> bool {
        let Some(first) = self.packages.front() else { return false };
        let number = self.numbers.entry(first.cert).or_default();
        *number = number.saturating_mul(4);
        *number < u64::MAX
    }
}

impl Log {
    /// Has key packages kept, once there is a group.
    pub(super) fn keep_packages(&mut self, now: Now, packages: &KeyPackages) {
        if self.devices.packages.len() < PACKAGES_WAITING {
            self.devices.packages.push_back(packages.clone());
        }
        self.go_on(now);
    }

    /// Asks the directory to keep the next of what waits.
    pub(super) fn keep_of_devices(&mut self, now: Now) {
        let signer = self.signing.for_others();
        let is_mail = |what: &Fetch| matches!(what, Fetch::Mail(_));
        let mail = self.provided.iter().filter(|(what, _)| is_mail(what)).take(limits::RELAY_MAIL_MAX);
        let (whats, mail): (Vec<Fetch>, Vec<_>) = mail
            .filter_map(|(what, bytes)| {
                let Fetch::Mail(cert) = what else { return None };
                Some((what.clone(), ((self.device)(cert), bytes.clone())))
            })
            .unzip();
        if !mail.is_empty()
            && let Ok(call) = self.follower.put_mail(mail, signer)
        {
            return self.request(call, Purpose::Keep(whats));
        }
        let Some(packages) = self.devices.packages.front() else { return };
        if self.is_asking(|it| matches!(it, Purpose::Packages)) {
            return;
        }
        let utc = now.utc.unwrap_or(Utc(0));
        // Greater than that of an earlier run. Without a clock it may be less, which the directory refuses, but not the same: that
        // one it takes for the same packages.
        let hash = sha256(packages.last_resort.as_ref().or(packages.single_use.first()).map_or(&[][..], Vec::as_slice));
        let step = 1 + u64::from(u16::from_be_bytes(*hash.first_chunk().expect("2 of 32 bytes")));
        let before = self.devices.numbers.get(&packages.cert).copied().unwrap_or(0);
        let number = before.saturating_add(step).max(u64::try_from(utc.0).unwrap_or(0) << 16);
        let package = |bytes: &Vec<u8>| Package { expires: packages.until, bytes: bytes.clone() };
        let (single_use, last_resort) =
            (packages.single_use.iter().map(package), packages.last_resort.as_ref().map(package));
        let device = (self.device)(&packages.cert);
        match self.follower.put_packages(device, number, single_use.collect(), last_resort, signer) {
            Ok(call) => {
                self.devices.numbers.insert(packages.cert, number);
                self.request(call, Purpose::Packages);
            }
            Err(_) => _ = self.devices.packages.pop_front(),
        }
    }

    /// The first of what waited is kept.
    pub(super) fn packages_kept(&mut self, single_use: u16) {
        self.devices.packages.pop_front();
        self.outputs.push_back(Output::PackagesKept(single_use.into()));
    }

    /// Hands on the oldest mail; the rest is fetched after it.
    pub(super) fn mail_came(&mut self, now: Now, id: FetchId, items: Vec<MailItem>) {
        let oldest = items.into_iter().next();
        self.devices.fetched = oldest.as_ref().map_or(0, |it| it.number);
        self.fetched(now, id, oldest.map(|it| it.bytes));
    }
}

/// Last resorts, and what is missing of the others: a device waits for an answer before it has more kept.
const PACKAGES_WAITING: usize = 4;
