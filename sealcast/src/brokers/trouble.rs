//! What keeps a client from getting what it waits for, for its user: a subscription that only waits looks like one at
//! which nothing is published.

use std::time::Duration;

use sealcast_broker::cluster_file::ClusterFile;
use sealcast_client::Done;
use sealcast_keys::Shortage;

use super::{BrokerStatus, Brokers};
use crate::code::Code;
use crate::error::Error;
use crate::io::channel::Channel;
use crate::remedy::Remedy;
use crate::session::Call;

impl Brokers {
    /// Why nothing will come any more for this client: nobody vouches for it at the brokers.
    pub fn excluded(&self) -> Option<Error> {
        self.driven.look(|it| it.excluded())
    }

    /// That more than f brokers have lied to this client, so that nothing they say can be relied on.
    pub fn misled(&self) -> Option<Error> {
        self.driven.look(|it| it.misled())
    }

    /// That fewer than 2f + 1 brokers are connected now: nothing is ordered as far as this client can see.
    pub fn cut_off(&self) -> Option<Error> {
        self.driven.look(|it| it.cut_off())
    }

    /// The first publication of a subscription that has waited for shares for some seconds, if there is one.
    pub fn shortage(&self) -> Option<Shortage> {
        self.driven.status()?.late
    }

    /// Which brokers sent no share of a publication that does not open, and why as far as they say; it asks them.
    pub fn explain<'a>(&'a self, it: &'a Shortage) -> Call<'a, Error> {
        Call::new(async move {
            let stands = self.status().await.unwrap_or_default();
            let none_from = stands.iter().filter(|stand| !it.holders.contains(&stand.broker));
            let none_from: Vec<String> = none_from.map(without).collect();
            let what = format!(
                "publication {} cannot be opened: {} of the {} shares that it needs have come; no share from {}",
                it.index,
                it.holders.len(),
                it.needed,
                none_from.join(", ")
            );
            Error::new(Code::NoQuorum, what).with_remedy(Remedy::FindShares)
        })
    }

    /// That so few brokers hold a share of the key that nobody can open what is sealed now, as those that answer within
    /// `timeout` say; `None` also if they do not answer in time, and where nothing is sealed.
    pub fn too_few_holders<'a>(&'a self, timeout: Duration) -> Call<'a, Option<Error>> {
        Call::new(async move {
            let cluster = self.cluster();
            if !self.driven.look(|it| it.seals()) {
                return None;
            }
            let token = self.take(|now, it| it.handle.status(now)).await.ok()?;
            let Done::Status(said) = self.done_within(token, timeout).await.ok()? else { return None };
            let stands = self.driven.look(|it| it.stands(&said));
            let holds = |stand: &&BrokerStatus| stand.said.as_ref().is_ok_and(|said| said.has_share);
            let (holders, needed) = (stands.iter().filter(holds).count(), usize::from(cluster.threshold));
            (holders < needed).then(|| {
            let others: Vec<String> = stands.iter().filter(|it| !holds(it)).map(without).collect();
            let what = format!(
                "nobody can open it for now: it needs shares of {needed} brokers, and {holders} can give theirs; no share from {}",
                others.join(", ")
            );
            Error::new(Code::NoQuorum, what).with_remedy(Remedy::FindShares)
        })
        })
    }
}

/// Too few brokers answer: which ones do not, and why.
pub(crate) fn no_quorum(cluster: &ClusterFile, channels: &[Channel], timeout: Duration) -> Error {
    let (n, needed) = (channels.len(), cluster.faulty() + 1);
    let silent = channels.iter().enumerate().filter(|(_, it)| !it.is_open());
    let silent: Vec<String> =
        silent.map(|(n, it)| format!("broker {n} ({})", it.why().unwrap_or("no answer"))).collect();
    let here = n - silent.len();
    let (code, what) = match here > 2 * cluster.faulty() {
        true => (
            Code::TimedOut,
            format!(
                "{here} of {n} brokers are connected, but no answer that {needed} of them give alike came in {timeout:?}{}",
                if silent.is_empty() { String::new() } else { format!("; not connected: {}", silent.join(", ")) }
            ),
        ),
        false => (Code::NoQuorum, format!("{here} of {n} brokers answer; silent: {}", silent.join(", "))),
    };
    Error::new(code, what).with_remedy(Remedy::CheckBrokers)
}

/// The brokers are not the cluster as we knew it (E11).
pub(crate) fn rolled_back(seen: u64, height: u64) -> Error {
    let what = format!("the brokers are at block {height}, and we have seen {seen}: their past was taken away");
    Error::new(Code::RolledBack, what).with_remedy(Remedy::CompareBrokers)
}

/// `broker 2 (it holds none)`
fn without(stand: &BrokerStatus) -> String {
    let why = match &stand.said {
        Ok(said) if !said.has_share => "it holds none",
        Ok(_) => "it sent no right one",
        Err(why) => why.strip_prefix(&format!("{}: ", stand.address)).unwrap_or(why),
    };
    format!("broker {} ({why})", stand.broker)
}
